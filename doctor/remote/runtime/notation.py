"""Values as JSON, without the package ``json``: it imports ``re``, which takes longer to load than Python itself."""


def to_json(value):
    """Text of None, booleans, numbers, texts, and lists and dicts of them. Raises: TypeError for anything else."""
    if isinstance(value, str):
        text = quoted(value)
        # A byte of the host that is not UTF-8 is half a surrogate pair here, which no strict reader takes.
        return quoted(value.encode("utf-8", "replace").decode("utf-8")) if "\\ud" in text else text
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        text = float.__repr__(value)
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)  # as the package json writes them
    if isinstance(value, dict):
        return "{" + ", ".join(["%s: %s" % (to_json(str(name)), to_json(value[name])) for name in value]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join([to_json(item) for item in value]) + "]"
    raise TypeError("%s is not JSON" % type(value).__name__)


def load_quoted():
    """What `json` itself quotes texts with: written in C where there is such a module."""
    try:
        from _json import encode_basestring_ascii
    except ImportError:
        from json.encoder import encode_basestring_ascii
    return encode_basestring_ascii


quoted = load_quoted()
