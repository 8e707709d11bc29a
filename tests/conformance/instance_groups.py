# Instance groups of Compute Engine, drawn at random: a server that speaks the API for Muster, and the object that TensorFlow's
# resolver takes as its service.
#
# Both answer from the same instances, and list only those in the state that was asked for. It must not know how either
# resolver orders them.
import contextlib
import http.server
import json
import re
import threading
import urllib.parse

PATH = re.compile(r"/projects/p/zones/z/(?:instanceGroups/(?P<group>\w+)/listInstances|instances/(?P<instance>[\w-]+))$")


class Answer:
    """What the API's client calls a request: it has an answer once it is executed."""

    def __init__(self, answer, page=0):
        self.answer, self.page = answer, page

    def execute(self):
        return self.answer


class Group:
    """Instances (state, address) by name, on pages of a few."""

    def __init__(self, draw):
        self.found = {f"vm-{i}": (draw.choice(("RUNNING", "RUNNING", "STOPPING")), f"10.0.{draw.randrange(3)}.{draw.randrange(1, 255)}")
                      for i in range(draw.randrange(1, 12))}
        self.per_page = draw.randrange(1, 5)

    def page(self, state, number):
        names = [name for name, (own, _) in self.found.items() if own == state]
        answer = {"items": [{"instance": f"https://host/zones/z/instances/{name}", "status": state}
                            for name in names[number * self.per_page:][:self.per_page]]}
        return answer | ({"nextPageToken": f"page {number + 1}"} if (number + 1) * self.per_page < len(names) else {})

    def instance(self, name):
        return {"name": name, "networkInterfaces": [{"networkIP": self.found[name][1]}, {"networkIP": "192.168.0.1"}]}

    # What TensorFlow calls of its service.
    def instanceGroups(self):
        return self

    def instances(self):
        return self

    def get(self, instance, **_):
        return Answer(self.instance(instance))

    def listInstances(self, body, **_):
        return Answer(self.page(body["instanceState"], 0))

    def listInstances_next(self, previous_request, previous_response):
        number = previous_request.page + 1
        return Answer(self.page("RUNNING", number), number) if "nextPageToken" in previous_response else None


@contextlib.contextmanager
def api_of(groups):
    """The URL of a server that answers for the groups, by their names."""
    class Api(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def answer(self, body):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def do_GET(self):
            name = PATH.match(self.path)["instance"]
            group, _, instance = name.partition("-in-")
            self.answer(groups[group].instance(instance))

        def do_POST(self):
            url = urllib.parse.urlsplit(self.path)
            name = PATH.match(url.path)["group"]
            token = urllib.parse.parse_qs(url.query).get("pageToken", ["page 0"])[0]
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            page = groups[name].page(body["instanceState"], int(token.removeprefix("page ")))
            for item in page["items"]:  # the names of a zone's instances differ
                item["instance"] = item["instance"].replace("/instances/", f"/instances/{name}-in-")
            self.answer(page)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
