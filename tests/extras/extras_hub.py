"""Models on the Hub, fetched from a small server that answers as the Hub does."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import torch
from huggingface_hub import ModelCard, constants

import hmrnn
import tiny
from hmrnn import InputError
from hmrnn.checkpoint import MODEL
from hmrnn.pretrained.bundled import FOLDER
from hmrnn.utils import hub

SHA = "a" * 40


class Hub(ThreadingHTTPServer):
    """Repositories by their names, with the content of files; what was asked for."""

    repositories: dict[str, dict[str, bytes]]
    claimed: dict[str, int]
    asked: list[str]


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *what: object) -> None: ...

    def do_POST(self) -> None:
        parts, body = (
            self.path.split("?")[0].strip("/").split("/"),
            self.rfile.read(int(self.headers["Content-Length"])),
        )
        name, says = (
            "/".join(parts[2:4]),
            {
                "url": f"{constants.ENDPOINT}/ann/mine",
                "commitUrl": f"{constants.ENDPOINT}/ann/mine/commit/{SHA}",
                "commitOid": SHA,
                "errors": [],
                "warnings": [],
            },
        )
        if parts[:3] == ["api", "repos", "create"]:
            given = json.loads(body)
            if given["organization"] == "eve":
                return self.say(403, b"{}", {"X-Error-Message": "not yours"})
            self.server.repositories.setdefault(f"{given['organization']}/{given['name']}", {})
        elif parts[-2:-1] == ["preupload"]:
            files = json.loads(body)["files"]
            says |= {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]}
        elif parts[-2:-1] == ["commit"]:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.server.repositories[name][line["value"]["path"]] = content
        return self.say(200, json.dumps(says).encode(), {})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        self.server.asked.append("/".join(parts))
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        files = self.server.repositories.get(name)
        if files is None:
            return self.say(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        if parts[0] == "api":
            if parts[4:5] == ["revision"] and parts[5] not in ("main", "v1", SHA):
                return self.say(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            listed = [{"rfilename": f, "size": self.server.claimed.get(f, len(c))} for f, c in files.items()]
            tree = [{"type": "file", "path": f, "size": len(c), "oid": "0" * 40} for f, c in files.items()]
            told = {"id": name, "sha": SHA, "siblings": listed, "private": False, "tags": [], "downloads": 0}
            return self.say(200, json.dumps(tree if "tree" in parts else told).encode(), {})
        content = files["/".join(parts[4:])]
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        return self.say(200, content, {"ETag": etag, "X-Repo-Commit": SHA, "Accept-Ranges": "none"})

    def say(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for header, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub(("127.0.0.1", 0), Answer)
    model = {path.name: path.read_bytes() for path in (FOLDER / "novel-small").iterdir() if path.is_file()}
    made.repositories, made.claimed, made.asked = {"ann/novel": model}, {}, []
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{made.server_address[1]}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.parametrize("address", ["hf://ann/novel", "hf://ann/novel@v1"])
def test_a_model_is_fetched(server: Hub, address: str) -> None:
    text = "The boats came back."
    found = hmrnn.load(address).segment(text)
    assert found.ends(1) == hmrnn.load("novel-small").segment(text).ends(1)
    assert tiny.hmrnn("segment", "-m", address, text) == 0


def test_a_fetched_model_is_read_offline(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.download("hf://ann/novel", MODEL)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    server.asked.clear()
    hmrnn.load("hf://ann/novel@" + SHA)
    assert server.asked == []


def test_only_the_files_of_a_model_are_fetched(server: Hub) -> None:
    server.repositories["ann/novel"] |= {"pytorch_model.bin": b"\x80pickle", "../up.json": b"{}", "hmrnn.py": b"1 / 0"}
    folder = hub.download("hf://ann/novel", MODEL)
    assert {path.name for path in folder.iterdir()} == {*MODEL}
    assert not [path for path in server.asked if path.endswith((".bin", ".py", "up.json"))]


@pytest.mark.parametrize("address", ["hf://ann/none", "hf://ann/novel@v9", "hf://../up", "hf://", "hf://a/b/c/d"])
def test_what_is_not_there_is_refused(server: Hub, address: str) -> None:
    with pytest.raises(InputError) as refused:
        hmrnn.load(address)
    assert "\n" not in str(refused.value)
    assert tiny.hmrnn("segment", "-m", address, "text") == 2


def test_hostile_models_are_refused(server: Hub) -> None:
    model = server.repositories["ann/novel"]
    server.repositories["eve/pickle"] = {"pytorch_model.bin": b"\x80"}
    server.repositories["eve/broken"] = model | {"model.safetensors": model["model.safetensors"][:-9]}
    for name in ("eve/pickle", "eve/broken"):
        with pytest.raises(InputError):
            hmrnn.load(f"hf://{name}")
    server.claimed["model.safetensors"] = 1 << 40
    with pytest.raises(InputError):
        hmrnn.load("hf://ann/novel")


def test_a_model_is_pushed_whole(server: Hub) -> None:
    model = hmrnn.load("novel-small")
    assert model.push_to_hub("ann/mine", license="mit", facts={"F1 of level 1": 0.97}) == "hf://ann/mine"
    sent = server.repositories["ann/mine"]
    assert {*sent} == {*MODEL, "README.md"}
    card = ModelCard(sent["README.md"].decode())
    assert (card.data.license, card.data.library_name) == ("mit", "hmrnn")
    assert "# mine\n" in card.text
    assert "| F1 of level 1 | 0.97 |\n" in card.text
    found = hmrnn.TextModel.from_pretrained("ann/mine")
    assert found.segment("The boats.").ends(1) == model.segment("The boats.").ends(1)
    with pytest.raises(InputError):
        hmrnn.StrokeModel.from_pretrained("ann/mine")


@pytest.mark.parametrize("kind", [hmrnn.HMLSTM, hmrnn.nn.LSTM])
def test_a_network_is_pushed_and_fetched(server: Hub, kind: Any) -> None:
    rnn = kind(3, 4, 2)
    assert rnn.push_to_hub("ann/rnn", license="mit") == "hf://ann/rnn"
    for name in ("ann/rnn", "hf://ann/rnn", "ann/rnn@v1"):
        found = kind.from_pretrained(name)
        assert all(map(torch.equal, found.parameters(), rnn.parameters()))
    assert ModelCard(server.repositories["ann/rnn"]["README.md"].decode()).data.license == "mit"
    with pytest.raises(InputError):
        kind.from_pretrained("ann/novel")


@pytest.mark.parametrize("name", ["eve/mine", "a/b/c", "../up", ""])
def test_what_cannot_be_pushed_is_refused_in_a_line(server: Hub, name: str) -> None:
    for model in (hmrnn.load("novel-small"), hmrnn.HMLSTM(3, 4, 2)):
        with pytest.raises(InputError) as refused:
            model.push_to_hub(name)
        assert "\n" not in str(refused.value)
