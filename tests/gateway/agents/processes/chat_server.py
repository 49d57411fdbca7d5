"""Server of one chat model that answers with the id of its process, as a program: `chat_server PORT [WORD …]`.

Words after the port change it: `fail` ends at once, and `spawn` starts a child and answers with the child's id.
"""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    answer = str(os.getpid())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"index": 0, "delta": {"content": self.answer}, "finish_reason": "stop"}
        chunk = json.dumps({"object": "chat.completion.chunk", "choices": [choice]})
        body = f"data: {chunk}\n\ndata: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(404)


if __name__ == "__main__":
    print("environment", sorted(os.environ), flush=True)
    if "fail" in sys.argv:
        sys.exit(4)
    if "spawn" in sys.argv:
        Handler.answer = str(subprocess.Popen(["sleep", "600"]).pid)
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
