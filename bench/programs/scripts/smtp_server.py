"""usage: smtp_server.py PORT"""

import asyncio
import sys
from typing import Any

from aiosmtpd.smtp import SMTP


class Accepting:
    async def handle_DATA(self, _server: Any, _session: Any, _envelope: Any) -> str:
        return "250 OK"


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(Accepting()), "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
