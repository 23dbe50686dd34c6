"""What is a secret by its own shape, such as tokens of services, and by the command that it stands in."""

import re
from functools import cache

SHAPES = {
    "hf_": r"hf_(?:[A-Za-z0-9]{28,}|[A-Za-z0-9]+(?=…))",
    **{f"gh{kind}_": rf"gh{kind}_(?:[A-Za-z0-9]{{20,}}|[A-Za-z0-9]+(?=…))" for kind in "opsur"},
    "github_pat_": r"github_pat_(?:\w{20,}|\w+(?=…))",
    "sk-": r"sk-(?=[A-Za-z_-]*[0-9])(?:[\w-]{20,}|[\w-]{4,}(?=…))",
    "glpat-": r"glpat-(?:[\w-]{16,}(?:\.[0-9a-z]{2}\.?[0-9a-z]{7})?|[\w-]+(?=…))",
    "xox": r"xox[a-z]-(?:[A-Za-z0-9-]{10,}|[A-Za-z0-9-]+(?=…))",
    "AKIA": r"AKIA(?:[A-Z0-9]{16}(?![A-Za-z0-9])(?::[A-Za-z0-9+/]{40})?|[A-Z0-9]+(?=…))",
    "ASIA": r"ASIA(?:[A-Z0-9]{16}(?![A-Za-z0-9])|[A-Z0-9]+(?=…))",
    **{f"A{kind}": rf"A{kind}[A-Z2-7]{{16}}(?![A-Za-z0-9])" for kind in ("BIA", "CCA")},
    "A3T": r"A3T[A-Z0-9][A-Z2-7]{16}(?![A-Za-z0-9])",
    "A3-": r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}(?![\w-])",
    "API-": r"API-[A-Z0-9]{26}(?![A-Za-z0-9])",
    "4b1d": r"4b1d(?=[0-9A-Za-z]{0,37}[G-Zg-z])[A-Za-z0-9]{38}(?![A-Za-z0-9])",
    "EAA": r"EAA(?:[MC][A-Za-z0-9]{100,}|A(?=[\w-]{0,60}[0-9])[\w-]{22,60})(?![\w-])",
    "AIza": r"AIza[\w-]{35}",
    "eyJ": r"eyJ(?:[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|[\w.-]{8,}(?=…))",
    "npm_": r"npm_(?:[A-Za-z0-9]{20,}|[A-Za-z0-9]+(?=…))",
    "pypi-": r"pypi-[\w-]{32,}",
    "nvapi-": r"nvapi-[\w-]{20,}",
    "gsk_": r"gsk_[A-Za-z0-9]{20,}",
    "r8_": r"r8_[A-Za-z0-9]{30,}",
    "dckr_": r"dckr_(?:pat|oat)_[\w-]{20,}",
    "dapi": r"dapi[0-9a-f]{32}(?:-\d)?(?![\w])",
    "dop_v1_": r"dop_v1_[0-9a-f]{40,}",
    **{
        f"gl{kind}-": rf"gl{kind}-[\w.-]{{16,}}"
        for kind in ("rt", "dt", "ptt", "cbt", "soat", "ft", "imt", "agent", "oas")
    },
    "glc_": r"glc_[A-Za-z0-9+/]{32,}",
    "glsa_": r"glsa_[A-Za-z0-9]{20,}_?[0-9a-f]*",
    **{f"hv{kind}.": rf"hv{kind}\.[\w-]{{20,}}" for kind in "sb"},
    "LTAI": r"LTAI[A-Za-z0-9]{12,}(?![A-Za-z0-9])",
    "AKID": r"AKID[A-Za-z0-9]{28,}(?![A-Za-z0-9])",
    "ya29.": r"ya29\.[\w-]{20,}",
    "GOCSPX-": r"GOCSPX-[\w-]{20,}",
    "SG.": r"SG\.[\w-]{16,}\.[\w-]{16,}",
    **{f"k_{kind}_": rf"[prs]k_{kind}_[A-Za-z0-9]{{16,}}" for kind in ("live", "test", "prod")},
    "xapp-": r"xapp-[A-Za-z0-9-]{16,}",
    "lsv2_": r"lsv2_[a-z]{2}_[0-9a-f]{20,}(?:_[0-9a-f]+)?",
    "tskey-": r"tskey-[A-Za-z0-9-]{16,}",
    "shp": r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    "lin_api_": r"lin_api_[A-Za-z0-9]{20,}",
    "ATATT3": r"ATATT3[\w=-]{20,}",
    "secret_": r"secret_[A-Za-z0-9]{40,}",
    "ntn_": r"ntn_[A-Za-z0-9]{40,}",
    "AGE-SECRET-KEY-": r"AGE-SECRET-KEY-1[A-Z0-9]{40,}",
    "AKCp": r"AKCp[A-Za-z0-9]{60,}",
    "AQVN": r"AQVN[\w-]{35,}",
    **{f"CCI{kind}_": rf"CCI{kind}_[\w-]{{20,}}_[0-9a-f]{{40}}" for kind in ("PAT", "PRJ")},
    "HRKU-AA": r"HRKU-AA[\w-]{40,}",
    "NRAK-": r"NRAK-[A-Za-z0-9]{27}",
    "PMAK-": r"PMAK-[0-9a-fA-F]{24}-[0-9a-fA-F]{34}",
    "api_org_": r"api_org_[A-Za-z0-9]{30,}",
    **{f"do{kind}_v1_": rf"do{kind}_v1_[0-9a-f]{{40,}}" for kind in "or"},
    "ops_eyJ": r"ops_eyJ[A-Za-z0-9+/]{100,}",
    "pplx-": r"pplx-[A-Za-z0-9]{40,}",
    "pscale_": r"pscale_(?:tkn|oauth|pw)_[\w=.-]{32,}",
    "pul-": r"pul-[0-9a-f]{40}(?![0-9a-f])",
    "rubygems_": r"rubygems_[0-9a-f]{48}",
    "sbp_": r"sbp_[0-9a-f]{40}(?![0-9a-f])",
    "sgp_": r"sgp_(?:[0-9a-fA-F]{16}_|local_)?[0-9a-fA-F]{40}",
    "sha256~": r"sha256~[\w-]{43}",
    **{f"sntry{kind}_": rf"sntry{kind}_[\w+/=]{{40,}}" for kind in "su"},
    "tgp_v1_": r"tgp_v1_[\w-]{40,}",
    "xai-": r"xai-[A-Za-z0-9]{60,}",
    **{f"x{kind}sib-": rf"x{kind}sib-[0-9a-f]{{32,}}(?:-[A-Za-z0-9]+)?" for kind in ("key", "smtp")},
    "wandb_v1_": r"wandb_v1_\w{40,}",
    "bce-v3/": r"bce-v3/ALTAK(?:SP)?-[A-Za-z0-9]{10,}/[0-9a-f]{32,}",
    **{f"AK{kind}": rf"AK{kind}[A-Za-z0-9_-]{{20,}}(?![\w-])" for kind in ("LT", "TP")},
    "JDC_": r"JDC_[A-Z0-9]{28,}",
    **{
        f"{kind}_": rf"{kind}_(?=[A-Za-z]{{0,40}}[0-9])[A-Za-z0-9]{{30,}}"
        for kind in ("nfp", "phx", "vcp", "napi", "rnd")
    },
    "bkua_": r"bkua_[0-9a-f]{40}",
    "CFPAT-": r"CFPAT-[\w-]{43}",
    "oy2": r"oy2[A-Za-z0-9]{43}(?![A-Za-z0-9])",
    "sb_secret_": r"sb_secret_[\w-]{20,}",
    **{f"sq{kind}_": rf"sq{kind}_[0-9a-f]{{40}}" for kind in "pua"},
    "whsec_": r"whsec_[A-Za-z0-9+/=]{24,}",
    "eyJrIjoi": r"eyJrIjoi[A-Za-z0-9]{50,}={0,3}",
    "NRJS-": r"NRJS-[0-9a-f]{19}",
    "NRII-": r"NRII-[\w-]{32}",
    "dnkey-": r"dnkey-[\w=-]{26}-[\w=-]{52}",
    "tfp_": r"tfp_[\w.=-]{59}",
    "lin_oauth_": r"lin_oauth_[0-9a-f]{40,}",
    "t1.": r"t1\.[\w-]{20,}={0,2}\.[\w-]{86}",
    "key-": r"key-[0-9a-f]{32}(?![0-9a-f])",
    "-us": r"[0-9a-f]{32}-us[0-9]{1,2}(?![0-9])",
    ":AA": r"[0-9]{8,10}:AA[\w-]{33}(?![\w-])",
    "ABSK": r"ABSK[A-Za-z0-9+/]{60,}={0,2}",
    "CLOJARS_": r"CLOJARS_[A-Za-z0-9]{60}",
    **{f"EZ{kind}K": rf"EZ{kind}K[A-Za-z0-9]{{54}}" for kind in "AT"},
    "FLWSECK_TEST-": r"FLWSECK_TEST-[A-Za-z0-9]{12,32}(?:-X)?",
    "GR1348941": r"GR1348941[\w-]{20}",
    "Q~": r"[\w~.]{3}[0-9]Q~[\w~.-]{31,34}",
    "ZXlK": r"ZXlK[\w+/-]{60,}={0,2}",
    "_gitlab_session=": r"_gitlab_session=[0-9a-z]{32}",
    "_mmk": r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?![A-Za-z0-9])",
    ".acc": r"(?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_-][\w-]{10,32}\.[\w+/=-]{30,}",
    "bedrock-api-key-": r"bedrock-api-key-[A-Za-z0-9+/=]{20,}",
    "cmVmd": r"cmVmd[A-Za-z0-9]{59}(?![A-Za-z0-9])",
    **{
        f"dp.{kind}.": rf"dp\.{kind}\.(?:[a-z0-9_-]{{2,35}}\.)?[A-Za-z0-9]{{40,}}"
        for kind in ("pt", "ct", "st", "sa", "scim", "audit")
    },
    "dt0c01.": r"dt0c01\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}",
    "duffel_": r"duffel_(?:test|live)_[\w=-]{43}",
    "fio-u-": r"fio-u-[\w=-]{64}",
    **{f"f{kind}_": rf"f{kind}_[\w+/=-]{{43,}}" for kind in ("o1", "m1a", "m1r", "m2")},
    "glffct-": r"glffct-[\w-]{20}",
    "ico-": r"ico-[A-Za-z0-9]{32}(?![A-Za-z0-9])",
    **{f"{kind}at.": rf"{kind}at\.[\w-]{{22}}\.[A-Za-z0-9]{{24}}\.[A-Za-z0-9]{{20}}" for kind in "ps"},
    "p8e-": r"p8e-[A-Za-z0-9]{32}",
    "pnu_": r"pnu_[A-Za-z0-9]{36}",
    "rdme_": r"rdme_[a-z0-9]{70}",
    "s-s4t2": r"s-s4t2(?:ud|af)-[0-9A-Fa-f]{64}",
    "shippo_": r"shippo_(?:live|test)_[0-9A-Fa-f]{40}",
    **{f"sm_{kind}at_": rf"sm_{kind}at_[A-Za-z0-9]{{16}}" for kind in "aps"},
    "sq0": r"sq0(?:atp|csp)-[\w-]{22,60}",
    "tk-us-": r"tk-us-[\w-]{48}",
    "v1.0-": r"v1\.0-[0-9a-f]{24}-[0-9a-f]{60,}",
    ".atlasv1.": r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,}",
    "ms-": r"ms-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![\w-])",
    "LS0tLS1CRUdJTi": r"LS0tLS1CRUdJTi(?=[A-Za-z0-9+/]{0,60}(?:UFJJVkFURSBLRVk|BSSVZBVEUgS0VZ|QUklWQVRFIEtFW))[\w+/=]+",
    "$apr1$": r"\$apr1\$[\w./]{1,16}\$[\w./]{16,}",
    **{f"${kind}$": rf"\${kind}\$[\w./=,$-]{{20,}}" for kind in ("1", "2a", "2b", "2y", "5", "6", "y", "7", "gy")},
    "$argon2": r"\$argon2(?:id|i|d)\$[\w./+=,$-]{20,}",
    "pbkdf2": r"pbkdf2(?:_|-|:)?sha(?:1|256|512)[$:][\w./+=,$:-]{20,}",
    "MUNGE:": r"MUNGE:[A-Za-z0-9+/=]{40,}:?",
    "figd_": r"figd_[\w-]{36,}",
    "fw_": r"fw_(?=[A-Za-z]{0,24}[0-9])(?=[a-z0-9]{0,24}[A-Z])[A-Za-z0-9]{22,28}(?![A-Za-z0-9])",
    "b3BlbnNzaC1rZXkt": r"b3BlbnNzaC1rZXkt[\w+/=]{20,}",
    "GOOG1": r"GOOG1[A-Z0-9]{20,}",
    "SHA}": r"\{S?SHA\}[\w+/=]{20,}",
}
"""Tokens by letters that they hold, most by those that they begin with; one that was cut ends in ``…``. Most are as
the rules of gitleaks (config/gitleaks.toml) and detectors of trufflehog (pkg/detectors) have them."""
PRIVATE_KEY = (
    r"----[ -]BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?[ -]----"
    r"(?:(?:(?!----)[\s\S]){0,16384}----[ -]END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?[ -]----"
    r"|(?:(?:\\+[nr]|\s)+(?:[^\n\\]{0,80}?\s)?[A-Za-z0-9+/]{16,}={0,2})*[A-Za-z0-9+/=\s\\]*)"
    r"|(?<=Private-Lines: )[0-9]{1,4}\s[A-Za-z0-9+/=\s]{1,16384}"
)
"""To its end, also where a log puts a time and a rank before each line."""
KEY_END = (
    r"(?m)^(?:(?:[^\n]{0,80}[ \t])?[A-Za-z0-9+/]{16,80}={0,2}[ \t\r]*\n){1,64}"
    r"[^\n]{0,80}----[ -]END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?[ -]----"
)
"""Of a text whose beginning was cut off."""
GAP = r"(?:[ \t]+|[\"'],[ \t]*[\"'])"
"""Between words of a command, also where a log shows them as a list."""
COMMANDS = (
    ("sshpass", rf"-p{GAP}?"),
    ("mysql|mysqldump|mysqladmin|mysqlimport|mariadb|mariadb-dump", "-p"),
    (
        "mongo|mongosh|mongodump|mongorestore|twine|cqlsh|beeline|ilorest|ncftpget|ncftpput|rdesktop|psexec|sshpw",
        rf"(?:-p|--plaintext){GAP}",
    ),
    ("sqlcmd|bcp|mosquitto_pub|mosquitto_sub", rf"-P{GAP}?"),
    ("plink|pscp|psftp|putty", rf"-pw{GAP}"),
    ("unrar", "-h?p"),
    ("keytool|jarsigner", rf"-(?:store|key)pass{GAP}"),
    ("skopeo|buildah", rf"--(?:src-|dest-)?creds(?:{GAP}|=)[^\s:]{{1,100}}:"),
    ("podman|crictl", rf"(?:--creds|pull[^\n|;&]{{0,80}}?[ ]--user)(?:{GAP}|=)[^\s:]{{1,100}}:"),
    ("https?", rf"(?:-a|--auth)(?:{GAP}|=)[^\s:]{{1,100}}:"),
    ("doctl", rf"init{GAP}-t{GAP}"),
    ("sendemail|swaks", rf"-xp{GAP}"),
    ("coscmd", rf"config{GAP}[^\n|;&]{{0,80}}?-s{GAP}"),
    ("sqlplus", r"[^\s/]{1,100}/"),
    ("rclone", rf"(?:obscure|config{GAP}[^\n]{{0,80}}?(?:secret_access_key|pass|token|key|sas_url)){GAP}"),
    ("kubectl|oc", r"secret[ ][^\n|;&]{0,80}?--from-literal=[^\s=]{1,100}="),
    ("npm|yarn|pnpm", rf"\S{{0,100}}_auth(?:Token)?{GAP}"),
    ("rootpw", rf"(?:--\w+{GAP})+"),
    (
        "docker|podman|nerdctl|skopeo|buildah|helm|oras|oc|az|crane",
        rf"login[ \"'][^\n|;&]{{0,80}}?(?<=[ \"'])-p(?:{GAP}|=)?",
    ),
    ("redis-cli", rf"(?:-a|--pass){GAP}"),
    ("ldapsearch|ldapmodify|ldapadd|ldapwhoami|ldappasswd", rf"-w{GAP}?"),
    ("smbclient|rpcclient", rf"-U{GAP}?[^\s%]{{1,100}}%"),
    ("mount", r"-o[ \t]+\S{0,200}\buser(?:name)?=[^\s,%]{1,100}%"),
    ("openssl", rf"(?:-k{GAP}|-pass(?:in|out)?{GAP}pass:)"),
    ("ipmitool|unzip|zip", rf"-P{GAP}?"),
    ("snmpwalk|snmpget|snmpset|snmpbulkwalk", rf"-[AXc]{GAP}"),
    ("htpasswd", rf"-(?:[a-zA-Z]*b[a-zA-Z]*{GAP}\S{{1,200}}|nb?|bn){GAP}\S{{1,100}}{GAP}"),
    ("useradd|usermod", rf"-p{GAP}"),
    ("racadm", rf"-p{GAP}"),
    (
        "curl",
        (
            rf"(?:(?:-x|--proxy)(?:{GAP}|=)?[^\s:@/\"']{{1,100}}:(?=(?!//)[^\s@]{{1,100}}@)"
            rf"|(?:-[uU]|--user|--proxy-user)(?:{GAP}|=)?[\"']?[^\s:\"']{{1,100}}:"
            rf"|(?:-b|--cookie)(?:{GAP}|=)[\"']?[^\s=;\"']{{1,100}}=)"
        ),
    ),
    ("ossutil|obsutil", r"-k[ =]+"),
    ("swanlab", rf"login{GAP}-k{GAP}"),
    ("wandb|vault", rf"login{GAP}(?:-[\w=-]+{GAP})*(?=\S{{0,200}}[0-9])"),
    ("gcloud", rf"--key{GAP}"),
    ("etcdctl", r"--user[ =][\"']?[^\s:\"']{1,100}:"),
    ("nmcli", rf"password{GAP}"),
    ("wpa_passphrase", rf"[^\s-]\S{{0,60}}{GAP}"),
    ("rabbitmqctl", rf"(?:change_password|add_user){GAP}\S{{1,100}}{GAP}"),
    ("lftp", rf"-u{GAP}[^\s,]{{1,100}},"),
    ("xfreerdp|xfreerdp3", r"/p:"),
    ("mc", rf"(?:alias{GAP}set{GAP}\S{{1,100}}|admin{GAP}user{GAP}add){GAP}\S{{1,200}}{GAP}\S{{1,100}}{GAP}"),
    ("kinit|sudo|chpasswd|gh|passwd", r"<<<[ \t]*"),
    ("ssh-keygen", rf"-[NP]{GAP}"),
    ("cargo", rf"login{GAP}"),
    ("poetry", rf"http-basic[.]\S{{1,60}}{GAP}\S{{1,60}}{GAP}"),
    ("vault", rf"kv{GAP}(?:put|patch){GAP}\S{{1,99}}{GAP}\w{{1,60}}="),
    ("7z|7za|7zr", "-p"),
)
"""Programs, and what stands before a secret among their words."""

INNOCENT = (
    r"(?:[\w.-]*[_.-])?(?:(?:eos|bos|pad|unk|sep|cls|mask|per|first|next|stop|start|image|video|audio|special)[_-]token"
    r"|(?:barrier|sort|primary|foreign|missing|unexpected|past|json|metric|reward|input|label|prompt|text|image|host"
    r"|cache|group|partition|lookup|row|column|dict|order|state|module|param|dataset|feature|target|query|attention|layer"
    r"|weight|output|batch|sample|unique|dedup|rank|prefix|hash|kv|loss|score|answer|question|response|messages|chosen"
    r"|rejected|caption|tensor|checkpoint|ckpt|tokenizer|split|content)"
    r"[_-]key|password-?less|(?:secrets?|passw(?:or)?d|token|key|credentials?)[_-]?(?:file|path|dir|name|policy|length|ttl))"
    r"(?![\w.-])"
)
"""Names of a tokenizer, of a column of data, and of statistics."""

WORDS = (
    *("pass", "secret", "credential", "key", "token", "auth", "pwd", "cookie", "密码", "口令", "login", "curl", ":/"),
    *("密钥", "パスワード", "비밀번호", "пароль", "Пароль", "ПАРОЛЬ", "senha", "contrase", "kennwort", "contraseÑ"),
    *(f"{sign}{end}" for sign in "_.-" for end in ("sk", "sas", "dsn")),
    *(
        "pw",
        "bearer",
        "jwt",
        "psk",
        "sessid",
        "sessionid",
        "sig=",
        "sign=",
        "signature=",
        "netloc",
        "community",
        "hook",
    ),
    *("oracle", "azure", "echo", "sk=", " sk:", "\tsk:", "ak/sk", "dockerconfigjson", "_pat=", "_pat:", "proxy"),
    *(program for programs, _ in COMMANDS for program in programs.split("|") if len(program) > 2),
    *("alias", "telegram", "passw", "psswd", "ftqq", "day.app", "conda", "(echo", "printf", "minio", "ssh.connect"),
    *("salt", "pepper", "setuser", "otp=", '"sk"', "'sk'", "session_id", "session-id", "identified", "signature:"),
    *("dingtalk", "7z", "send '", 'send "', "send --", "cryptsetup", "http -", "https -"),
    *("\u017f", "\u212a"),  # a long s and the sign of Kelvin are letters of these words, too, where case is ignored
    *map(str.lower, SHAPES),
)
"""In small letters: a line in which none of these stands holds no part of a secret, but that of a private key or login
that a line of the three before it began. `tests/diagnose/test_secrets_gate.py` holds it against the patterns."""
LONGEST_END = 1000
CLOSES = (
    ('"', '"'),
    ("'", "'"),
    ("<", "</"),
    ("echo", " | kinit"),
    ("printf", " | kinit"),
    ("://", "@h"),
    ("curl", "@h"),
)
"""What a text with a secret at its end holds, and what would stand behind the secret."""
CUT_PASSWORD = r"(?=\D*\d)(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?<![^\s\"'=:/(])[^\s\"'=:/(]{8,64}\Z"
"""The beginning of a password at the end of a text."""
MORE_LETTERS = "ZzZzZzZzZzZz"
"""What would stand behind it: with them it has as many characters as the rules of named passwords ask for."""


_OF_TOKENS = r"[\w.+/=~,$-]"


def hide_cut(text: str, mark: str) -> str:
    """``text`` with ``mark`` in the place of the beginning of a token at its end, where a token was cut."""
    for start, cut in _cut_shapes().items():
        if start in text:
            text = re.compile(cut).sub(mark, text)
    return re.compile(_cut_start()).sub(mark, text) if re.fullmatch(rf"{_OF_TOKENS}+", text[-12:]) else text


@cache
def _cut_shapes() -> dict[str, str]:
    """Of tokens with a number of characters, by the letters that they hold: with half of those of their last part."""
    counted = re.compile(r"(.*)\{([0-9]{2,3})(?:,[0-9]*)?\}(?:\(\?![^()]*\))?")
    matches = ((start, counted.fullmatch(shape)) for start, shape in SHAPES.items())
    begin = r"(?<![A-Za-z0-9])(?=\D{0,200}[0-9])"
    return {start: rf"{begin}{match[1]}{{{int(match[2]) // 2},}}\Z" for start, match in matches if match}


@cache
def _cut_start() -> str:
    """The beginning of a token at the end of a text; one of a few letters may begin any word, or a version."""
    starts = (start for start, shape in SHAPES.items() if shape.startswith((start, re.escape(start), "(?:", "[prs]")))
    others = ("key-", "v1.0-", "LS0tLS1CRUdJTi")
    short = (start for start in SHAPES if start == "A3-" or "(?=…)" in SHAPES[start])
    usual = dict.fromkeys([*(start for start in starts if len(start) > 3 and start not in others), *short])
    random = r"(?:(?=\D*\d)(?=[^a-zA-Z]*[a-zA-Z])|(?=(?:[^A-Z]*[A-Z]){4})(?=(?:[^a-z]*[a-z]){4}))"
    return rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, usual))}){random}{_OF_TOKENS}{{12,}}\Z"
