"""Which ``doctor.toml`` is read, and which one is not believed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from doctor.config.file import MAX_BYTES, ConfigError, ConfigFile, find_config, read_tables


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A file in each place, the most particular first, and the environment that names them all."""
    places = {
        "named": tmp_path / "named.toml",
        "variable": tmp_path / "variable.toml",
        "here": tmp_path / "here" / "doctor.toml",
        "user": tmp_path / "xdg" / "doctor" / "doctor.toml",
        "system": tmp_path / "etc" / "doctor.toml",
    }
    for name, path in places.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}")
        path.chmod(0o644)
    monkeypatch.chdir(tmp_path / "here")
    return places


def config_file(places: dict[str, Path], named: Path | None = None, **environ: str) -> ConfigFile:
    environ.setdefault("XDG_CONFIG_HOME", str(places["user"].parents[1]))
    return find_config(named, environ, places["system"])


class TestWhichOne:
    def test_what_is_named_goes_before_what_is_found(self, places: dict[str, Path]) -> None:
        variable = str(places["variable"])
        assert config_file(places, places["named"], DOCTOR_CONFIG=variable).text == "# named"
        assert config_file(places, DOCTOR_CONFIG=variable).text == "# variable"
        assert config_file(places, DOCTOR_CONFIG="").text == "# here"
        places["here"].unlink()
        assert config_file(places).text == "# user"
        places["user"].unlink()
        assert config_file(places).text == "# system"
        places["system"].unlink()
        assert config_file(places) == ConfigFile()

    def test_without_xdg_the_user_has_it_below_home(self, places: dict[str, Path]) -> None:
        places["here"].unlink()
        places["user"].parents[1].rename(places["user"].parents[2] / ".config")
        home = str(places["user"].parents[2])
        for xdg in ("", "relative/is/not/allowed"):
            assert config_file(places, XDG_CONFIG_HOME=xdg, HOME=home).text == "# user"
        assert config_file(places, XDG_CONFIG_HOME="", HOME="").text == "# system"

    def test_what_is_named_must_be_there(self, places: dict[str, Path]) -> None:
        with pytest.raises(
            ConfigError, match=r"nowhere\.toml: No such file or directory; expected a readable settings file"
        ):
            config_file(places, Path("nowhere.toml"))

    def test_the_null_device_means_none(self, places: dict[str, Path]) -> None:
        assert config_file(places, Path(os.devnull)).text == ""

    def test_a_place_that_cannot_be_looked_at_is_noted(self, places: dict[str, Path]) -> None:
        places["here"].unlink()
        places["user"].unlink()
        places["user"].symlink_to(places["user"])
        settings = config_file(places)
        assert settings.text == "# system"
        assert settings.notes == (f"no settings from {places['user']}: Too many levels of symbolic links",)


class TestWhatIsRefused:
    @pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
    def test_what_others_can_write_is_not_believed_when_it_was_only_found(
        self, places: dict[str, Path], mode: int
    ) -> None:
        places["here"].chmod(mode)
        with pytest.raises(
            ConfigError, match=rf"doctor\.toml: others can write it \(mode {mode:04o}\); expected chmod"
        ):
            config_file(places)
        assert config_file(places, places["here"]).text == "# here"

    def test_nor_is_what_belongs_to_another_user(
        self, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        owner = places["here"].stat().st_uid
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        if owner == 0:
            assert config_file(places).text == "# here"
            os.chown(places["here"], 12345, -1)
        with pytest.raises(ConfigError, match=r"is owned by user \d+; expected you or root: pass it with --config"):
            config_file(places)
        assert config_file(places, places["here"]).text == "# here"

    def test_a_pipe_holds_nobody_up(self, places: dict[str, Path]) -> None:
        places["here"].unlink()
        os.mkfifo(places["here"])
        with pytest.raises(ConfigError, match="is not a regular file"):
            config_file(places)

    def test_a_folder(self, places: dict[str, Path]) -> None:
        with pytest.raises(ConfigError, match="Is a directory; expected a readable settings file"):
            config_file(places, places["here"].parent)

    @pytest.mark.parametrize(
        ("data", "output"), [(b"\xff", "is not UTF-8 text"), (b"#" * (MAX_BYTES + 1), "is larger than")]
    )
    def test_what_is_no_text_of_bearable_length(self, places: dict[str, Path], data: bytes, output: str) -> None:
        places["named"].write_bytes(data)
        with pytest.raises(ConfigError, match=output):
            config_file(places, places["named"])

    def test_names_are_shown_without_what_they_hide(self, places: dict[str, Path]) -> None:
        with pytest.raises(ConfigError) as caught:
            config_file(places, Path("a\x1b[31m\n"))
        assert str(caught.value).isprintable()

    def test_a_table_that_nobody_reads(self) -> None:
        with pytest.raises(ConfigError, match='"wave": no such setting; did you mean waive'):
            read_tables(ConfigFile("doctor.toml", "[[wave]]"), ("waive",))
