"""A receiver of Tidegate's webhook: checks the signature, takes each event once, and prints it.

$ python examples/webhook_receiver.py 8099 /etc/hook.secret
$ tidegate run --source-uri .. --sink-uri 'http://127.0.0.1:8099/orders?secret-file=/etc/hook.secret' --state-dir ..
"""

import base64
import hashlib
import hmac
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SECRET = Path(sys.argv[2]).read_bytes().strip()
SEEN: set[str] = set()  # keep it where your results are, in the same transaction


class Receiver(BaseHTTPRequestHandler):
    """Answers 204 when all events of a call are taken; what is not answered so comes again."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Take a call."""
        body = self.rfile.read(int(self.headers["content-length"]))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
        signature = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
        if not hmac.compare_digest(f"v1,{signature}", self.headers.get("webhook-signature", "")):
            return self.reply(401)
        events = json.loads(body)
        for event in events if isinstance(events, list) else [events]:
            if event["id"] not in SEEN:
                print(event["time"], event["type"], event.get("subject", ""), event.get("partitionkey", ""), flush=True)
                SEEN.add(event["id"])
        return self.reply(204)

    def reply(self, status: int) -> None:
        """Answer without a body."""
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing of each call."""


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
