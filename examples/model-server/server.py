"""A minimal server of OpenAI's chat completions. Its only model returns the last message in capitals."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 9000
MODEL = {"id": "shouter", "object": "model"}


class Handler(BaseHTTPRequestHandler):
    """Handler of `GET /v1/models` and `POST /v1/chat/completions`."""

    def do_GET(self) -> None:
        self.send_json({"object": "list", "data": [MODEL]} if self.path == "/v1/models" else None)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            return self.send_json(None)
        message = {"role": "assistant", "content": request["messages"][-1]["content"].upper()}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        self.send_json({"id": "1", "object": "chat.completion", "model": MODEL["id"], "choices": choices})

    def send_json(self, content: dict[str, Any] | None) -> None:
        """Send the content, or 404 if it is None."""
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(content or {"error": {"message": "not found"}}).encode())


if __name__ == "__main__":
    print(f"Serving http://127.0.0.1:{PORT}/v1 (Ctrl-C stops it)", flush=True)
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
