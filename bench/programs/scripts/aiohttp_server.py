"""usage: aiohttp_server.py PORT asyncio|uvloop"""

import asyncio
import sys

import uvloop
from aiohttp import web


async def hello(_request: web.Request) -> web.Response:
    return web.json_response({"id": 7, "name": "thing"})


app = web.Application()
app.router.add_get("/", hello)
loop = uvloop.new_event_loop() if sys.argv[2] == "uvloop" else asyncio.new_event_loop()
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None, loop=loop)
