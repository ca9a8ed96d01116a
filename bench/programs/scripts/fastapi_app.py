"""An application of FastAPI: JSON."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

app = FastAPI()


@app.get("/item/{number}")
async def item(number: int) -> dict[str, Any]:
    return {"id": number, "name": "thing", "tags": ["a", "b"], "price": 12.5}
