"""NanoIDP, an identity provider, on a free port: users `alice` and `bob`, and the client `client` with `secret`.

Options: `users`, and settings of NanoIDP's section `oauth` such as `audience`.
"""

import json
import os
import sys
import tempfile
import threading
from pathlib import Path

from lines import options, say
from nanoidp.app import create_app
from serving import listen, url
from werkzeug.serving import make_server

USERS = {
    name: {
        "password": "password",
        "email": f"{name}@example.com",
        "groups": [group],
        "roles": ["USER"],
        "tenant": "acme",
    }
    for name, group in (("alice", "dev"), ("bob", "ops"))
}


def main() -> None:
    listener = listen()
    with tempfile.TemporaryDirectory() as folder:
        settings = options()
        users = settings.pop("users", USERS)
        oauth = {
            "issuer": url(listener),
            "audience": "http://localhost",
            "clients": [{"client_id": "client", "client_secret": "secret", "description": "A client"}],
            **settings,
        }
        home = Path(folder)
        # JSON is YAML.
        jwt = {"keys_dir": str(home / "keys")}
        (home / "settings.yaml").write_text(json.dumps({"config_version": 1, "oauth": oauth, "jwt": jwt}))
        (home / "users.yaml").write_text(json.dumps({"config_version": 1, "users": users}))
        os.environ["NANOIDP_CONFIG_DIR"] = folder
        app = create_app(str(home))
        listener.listen()
        host, port = listener.getsockname()
        server = make_server(host, port, app, threaded=True, fd=listener.fileno())
        threading.Thread(target=server.serve_forever, daemon=True).start()
        say({"ready": url(listener)})
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
