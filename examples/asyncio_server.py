"""An asyncio server whose requests interleave: each is one call in slices, and what it waits for is not in it.

bridge run examples/asyncio_server.py
"""

import asyncio

from bridge import nvtx_op


@nvtx_op(args=("number",))
async def request(number: int) -> int:
    with nvtx_op("parse"):
        await asyncio.sleep(0.001)
    answer = await model(number)
    with nvtx_op("reply"):
        return answer


@nvtx_op
async def model(number: int) -> int:
    await asyncio.sleep(0.002)
    return sum(range(1000 * number))


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(f"{await request(int(await reader.readline()))}\n".encode())
    await writer.drain()
    writer.close()


async def ask(port: int, number: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{number}\n".encode())
    answer = int(await reader.readline())
    writer.close()
    return answer


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    async with server:
        answers = await asyncio.gather(*(ask(port, number) for number in range(8)))
    print(f"{len(answers)} answers, the largest {max(answers)}")


asyncio.run(main())
