"""An application of Flask: 1 KiB for every request."""

from flask import Flask

app = Flask(__name__)


@app.get("/")
def index() -> str:
    return "x" * 1024
