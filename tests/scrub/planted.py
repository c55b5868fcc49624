"""Secrets of sixty and more kinds: what tells of each, and the parts of it that must not survive.

``¦`` stands in each that scanners for secrets would find here, and is taken out.
"""

from __future__ import annotations

HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
PEM = "-----BEGIN RSA ¦PRIVATE KEY-----\nMIIEowIBAAKCAQEAu1SU\nLfVLPHCozMx9\n-----END RSA PRIVATE KEY-----"

# Variables of the environment, or options of the program, with their values; and what of each must go
# wherever it occurs: the value if nothing else is said.
BY_NAME: dict[str, tuple[str, ...]] = {
    "GH_PAT": ("qWe-rty.9281",),
    "AZURE_SAS": ("sv=2022&sig=AbC%2Bdef%3D", "AbC%2Bdef%3D", "AbC+def="),
    "BEARER": ("be4rer-value",),
    "SERVICE_JWT": ("aaaa1.bbbb2.cccc3",),
    "HTTPS_PROXY": (
        "http://pxuser:pxpass77@proxy.corp.example:3128",
        "pxuser",
        "pxpass77",
        "proxy.corp.example",
    ),
    "MASTER_ADDR": ("trainer-0.jobs.corp", "trainer-0.jobs.corp", "trainer-0"),
    "SLURM_JOB_NODELIST": (
        "gpunode[01-03,07],login5",
        "gpunode01",
        "gpunode02",
        "gpunode03",
        "gpunode07",
        "login5",
    ),
    "SSH_CLIENT": ("10.1.2.3 50022 22", "10.1.2.3"),
    "SSH_CONNECTION": ("2001:db8::12 50022 2001:db8::1 22", "2001:db8::12"),
    "HOME": ("/users/dorothea", "dorothea"),
    "PYTHONPATH": ("/home/zacharias/lib:/opt/lib", "zacharias"),
    "USER": ("bobby.tables",),
    "SUDO_USER": ("erika",),
    "GIT_AUTHOR_EMAIL": ("carol@corp.example", "carol@corp.example", "carol"),
    "ALL_TOKENS": ("tokA123,tokB456", "tokA123", "tokB456"),
    "GOOGLE_CREDENTIALS": (
        '{"user": "svc-acct", "password": "jsonpw99", "more": {"k": ["deepsecret1"]}}',
        "svc-acct",
        "jsonpw99",
        "deepsecret1",
    ),
    "AUTH_HEADER": ("Bearer hdrval-7788", "hdrval-7788"),
    "SIGNING_PRIVATE_KEY": (PEM, "MIIEowIBAAKCAQEAu1SU", "LfVLPHCozMx9"),
    "DATABASE_URL": (
        "postgres://svc_user:pw12345@dbhost7/x?sslkey=qqkey8",
        "svc_user",
        "pw12345",
        "dbhost7",
        "qqkey8",
    ),
    "CONNECTION_STRING": (
        "Server=tcp:sqlsrv9,1433;User ID=sa_adm;Password=Pw!77x;",
        "sqlsrv9",
        "sa_adm",
        "Pw!77x",
    ),
    "PGPASSWORD": ("pg-pass-1",),
    "MYSQL_PWD": ("hunter22",),
    "SMTP_PASS": ("sm!tp#9",),
    "AWS_SECRET_ACCESS_KEY": ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",),
    "WANDB_API_KEY": (HEX,),
    "JUPYTER_TOKEN": (HEX[::-1],),
    "SLACK_WEBHOOK": ("https://hooks.¦slack.com/services/T01/B04/x7Qm9LkVz2T", "x7Qm9LkVz2T"),
    "SESSION_COOKIE": ("sid=cook-55-id; other=vvv1", "cook-55-id", "vvv1"),
    "SNOWFLAKE_ACCOUNT": ("xy12345.eu-west",),
    "DOCKER_AUTH_CONFIG": ('{"auths": {"reg": {"auth": "dXNlcjpwdw=="}}}', "dXNlcjpwdw=="),
    "API_KEYS": ("k1:first-key-1;k2:second-key-2", "first-key-1", "second-key-2"),
    "SENTRY_DSN": (
        "https://abc123pub@o99.ingest.example/4505",
        "abc123pub",
        "o99.ingest.example",
    ),
    "KAGGLE_USERNAME": ("kaggler77",),
    "RDZV_ENDPOINT": ("rdzv-host9:29400", "rdzv-host9"),
    "HTTP_AUTHORIZATION": ("Basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy"),
    "SESSION_SECRET": ("  sp4ced ", "sp4ced"),
    "QUOTED_TOKEN": ('say "quo-ted9" now', "quo-ted9"),
    "PERCENT_KEY": ("p%40ss%2Fw0rd", "p%40ss%2Fw0rd", "p@ss/w0rd"),
    "LICENSE_SERVER": ("27000@licsrv3", "licsrv3"),
    "HOSTNAME": ("build-box-4",),
    "RUN_ID": ("x7Qm9LkVz2TnRb4WcYs8HdJg0",),  # of no telling name, but random
}

# Texts of a form that is known, in names of ranges alone; and what of each must go.
BY_FORM: dict[str, tuple[str, ...]] = {
    "AWS key": ("AKIA¦IOSFODNN7EXAMPLE",),
    "AWS session": ("ASIA¦Y34FZKBOKMUTVV7A",),
    "GitHub": ("ghp_¦16C7e42F292c6912E7710c838347Ae178B4a",),
    "GitHub, fine-grained": ("github_pat_¦11ABCDEFG0abcdefghijkl_mnopqrstuvwx",),
    "GitLab": ("glpat¦-x7Tz_9qLm2vKc4RbN8sW",),
    "Hugging Face": ("hf_¦QxLmZpTrWnKsVbYcHdJgFaEuRiOoPtNkMw",),
    "OpenAI": ("sk-¦proj-9vQ2xKd7LmW4ZtRb8YcNf5HsJe1PaGu",),
    "Anthropic": ("sk-¦ant-api03-9vQ2xKd7LmW4-ZtRb8YcNf5_HsJe1PaGu",),
    "Slack": ("xoxb¦-2444333222111-8zXcVbNmAsDfGhJk",),
    "Slack webhook": (
        "https://hooks.¦slack.com/services/T01AB2CD3/B04EF5GH6/x7Qm9LkVz2TnRb4WcYs8",
        "T01AB2CD3",
        "x7Qm9LkVz2TnRb4WcYs8",
    ),
    "Google": ("AIza¦SyD4kW8xQm2LvT9rZbNc7YfHs5JpGuE1aRi",),
    "Google OAuth": ("ya29¦.a0AfH6SMBx7Qm9LkVz2TnRb4",),
    "JWT": ("eyJ¦hbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.dQw4w9WgXcQ7abcdefgh",),
    "PEM": (PEM.replace("9", "3"), "LfVLPHCozMx3"),
    "npm": ("npm_¦x7Qm9LkVz2TnRb4WcYs8HdJgFaEuRi0p",),
    "PyPI": ("pypi¦-AgEIcHlwaS5vcmcCJDU3",),
    "Docker": ("dckr¦_pat_x7Qm9LkVz2TnRb4WcYs8",),
    "NVIDIA": ("nvapi¦-x7Qm9LkVz2TnRb4WcYs8HdJg_FaEuRi",),
    "Databricks": ("dapi" + HEX[:32],),
    "Stripe": ("sk_live_x7Qm9LkVz2TnRb4W",),
    "SendGrid": ("SG¦.x7Qm9LkVz2TnRb4WcYs8.HdJgFaEuRi0pQwErTy12",),
    "Vault": ("hvs¦.x7Qm9LkVz2TnRb4WcYs8",),
    "Replicate": ("r8_¦x7Qm9LkVz2TnRb4WcYs8HdJg",),
    "Tailscale": ("tskey¦-auth-kx7Qm9LkVz2T-nRb4WcYs8",),
    "Telegram": ("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1",),
    "Azure storage": (
        "AccountKey=x7Qm9LkVz2TnRb4WcYs8HdJgFaEuRi0pQwErTy==;",
        "x7Qm9LkVz2TnRb4WcYs8HdJgFaEuRi0pQwErTy",
    ),
    "Azure SAS": ("https://x/y?sv=1&sig=x7Qm9LkV%2Bz2T", "x7Qm9LkV%2Bz2T"),
    "login": ("redis://svc9:hunter3@cache:6379/0", "svc9", "hunter3"),
    "bearer": ("Authorization: Bearer abcdef-123456", "abcdef-123456"),
    "basic": ("authorization: basic dXNlcjpodW50ZXIx", "dXNlcjpodW50ZXIx"),
    "password": ("connect(password=hunter2!x)", "hunter2"),
    "JSON password": ('{"client_secret": "cl13nt"}', "cl13nt"),
    "e-mail": ("alice.smith@example.org", "alice.smith", "example.org"),
    "IPv4": ("10.20.30.40",),
    "IPv6": ("2001:db8:0:0:8:800:200c:417a",),
    "IPv6, short": ("fe80::1ff:fe23:4567:890a",),
    "MAC": ("3c:22:fb:01:9a:7e",),
    "S3": ("s3://acme-models/alice7/w.bin", "acme-models", "alice7"),
    "GCS": ("gs://acme-bucket/x", "acme-bucket"),
    "Azure blob": ("https://acmeacct.blob.core.windows.net/c/x", "acmeacct"),
    "HTTPS bucket": ("https://acme-data.s3.amazonaws.com/k/x", "acme-data"),
    "UNC": (r"\\fileserver3\share7\x.py", "fileserver3", "share7"),
    "home": ("/home/alice9/src/train.py", "alice9", "src/"),
    "macOS": ("/Users/alice9/train.py", "alice9"),
    "Windows": (r"C:\Users\alice9\train.py", "alice9"),
    "scratch": ("/scratch/proj-secret9/run.py", "proj-secret9"),
}


def _joined(kinds: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {kind: tuple(text.replace("¦", "") for text in texts) for kind, texts in kinds.items()}


BY_NAME, BY_FORM = _joined(BY_NAME), _joined(BY_FORM)


def parts(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return what of a value must go."""
    return value[1:] or value
