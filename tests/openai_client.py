"""The official OpenAI client against a real gateway: plain, streamed, and with an idempotency key.

Usage: openai_client.py PATH_TO_GREENROOM. Ends with a line "N passed, N failed".
"""

import json
import os
import subprocess
import sys
import tempfile
import time

from openai import OpenAI

passed, failed = 0, 0


def check(name, condition, found=None):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print(f"FAILED {name}: {found!r}")


def start(program, home):
    config = {"channels": {"websocket": {"port": 0}}, "api": {"port": 0}, "gateway": {"port": 0}}
    with open(os.path.join(home, "config.json"), "w") as file:
        json.dump(config, file)
    gateway = subprocess.Popen([program, "gateway"], env={**os.environ, "GREENROOM_HOME": home})
    beacon = os.path.join(home, "run", "gateway.json")
    for _ in range(600):
        if os.path.exists(beacon):
            with open(beacon) as file:
                return gateway, json.load(file)["api_url"]
        time.sleep(0.1)
    raise SystemExit("the gateway did not start")


def main():
    home = tempfile.mkdtemp()
    gateway, url = start(sys.argv[1], home)
    try:
        client = OpenAI(base_url=url, api_key="unused")
        model = client.models.list().data[0].id
        hello = [{"role": "user", "content": "hello"}]

        plain = client.chat.completions.create(model=model, messages=hello, user="ann")
        check("plain answer", "hello" in plain.choices[0].message.content, plain)
        check("finish reason", plain.choices[0].finish_reason == "stop", plain)
        check("usage", plain.usage.total_tokens >= 0, plain.usage)

        text = ""
        for chunk in client.chat.completions.create(model=model, messages=hello, user="bob", stream=True):
            text += chunk.choices[0].delta.content or "" if chunk.choices else ""
        check("streamed answer", "hello" in text, text)

        headers = {"Idempotency-Key": "order-17"}
        first = client.chat.completions.create(model=model, messages=hello, user="eve", extra_headers=headers)
        second = client.chat.completions.create(model=model, messages=hello, user="eve", extra_headers=headers)
        check("same outcome", first.id == second.id and first.choices == second.choices, (first, second))

        try:
            client.chat.completions.create(model="another", messages=hello)
            check("unknown model is refused", False)
        except Exception as error:
            check("unknown model is refused", getattr(error, "status_code", None) == 404, error)
    finally:
        gateway.terminate()
        check("orderly stop", gateway.wait(60) == 0, gateway.returncode)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
