#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streaming of tokens by lockstep, MosaicML streaming and LitData, in turn, from one radosgw with the same tokens, each with an empty cache:
seconds until the first batch of a new process (imports of Python apart), and windows per second of a loop that does nothing but read.

    pip install mosaicml-streaming litdata==0.2.51           # later ones (0.2.76) refuse http://
    . tests/lib/radosgw.sh; radosgw_start /tmp/rgw 25000     # and AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION; a bucket
    bench/stream_peer.py BUCKET [MILLIONS_OF_TOKENS [ROUNDS]]

Windows of 2,048 tokens in uint16, shuffled, batches of 8; 2 worker processes for the peers, whose samples are a window each (lockstep cuts windows of
any length out of what is stored). Programs: LOCKSTEP (default build/release/lockstep) and bench_stream beside it. PEERS=litdata: that one alone."""
import json, os, pathlib, random, subprocess, sys, tempfile, time

CONTEXT, BATCH = 2048, 8
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PEERS = os.environ.get("PEERS", "mosaicml litdata").split()
LOCKSTEP = pathlib.Path(os.environ.get("LOCKSTEP", REPOSITORY / "build/release/lockstep")).resolve()


def mosaicml(remote, local):
    import streaming, torch
    os.environ["S3_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL"]
    begin = time.time()
    streaming.base.util.clean_stale_shared_memory()
    data = streaming.StreamingDataset(remote=remote, local=local, shuffle=True, batch_size=BATCH)
    return begin, torch.utils.data.DataLoader(data, batch_size=BATCH, num_workers=2, collate_fn=lambda rows: [row["ids"] for row in rows])


def litdata(remote, local):
    os.environ["AWS_ALLOW_HTTP"] = "true"
    import litdata
    begin = time.time()
    options = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"], "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
               "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"], "region_name": os.environ["AWS_REGION"]}
    data = litdata.StreamingDataset(remote, cache_dir=local, shuffle=True, storage_options=options)
    return begin, litdata.StreamingDataLoader(data, batch_size=BATCH, num_workers=2)


def consume(kind, remote, local):
    """In a process of its own: prints what bench_stream prints."""
    begin, loader = {"mosaicml": mosaicml, "litdata": litdata}[kind](remote, local)
    count, first = 0, 0.0
    for batch in loader:
        count += len(batch)
        first = first or time.time() - begin
    print(json.dumps({"first_s": first, "windows_ps": (count - BATCH) / (time.time() - begin - first), "windows": count}))


def window(bytes_):
    return {"ids": bytes_}


def prepare(bucket, scratch, millions):
    """The same tokens in all forms."""
    random.seed(7)
    windows = int(millions * 1e6) // CONTEXT
    tokens = random.randbytes(windows * CONTEXT)
    rows = [bytes(b for pair in zip(tokens[i : i + CONTEXT], bytes(CONTEXT)) for b in pair) for i in range(0, len(tokens), CONTEXT)]
    (scratch / "tokens.bin").write_bytes(b"".join(rows))
    if "mosaicml" in PEERS:
        import streaming
        with streaming.MDSWriter(out=str(scratch / "mosaicml"), columns={"ids": "bytes"}) as out:
            for row in rows:
                out.write(window(row))
    if "litdata" in PEERS:
        import litdata
        litdata.optimize(fn=window, inputs=rows, output_dir=str(scratch / "litdata"), chunk_bytes="64MB", num_workers=1)
    run = lambda *words: subprocess.run([LOCKSTEP, *words], check=True, stdout=subprocess.DEVNULL)
    run("data", "prepare", scratch / "tokens.bin", "--tokenizer", "bytes", "--to", f"s3://{bucket}/set")
    for name in PEERS:
        run("blob", "put", scratch / name, f"s3://{bucket}/{name}", "--recursive")
    return windows


def main():
    bucket, millions, rounds = sys.argv[1], float((sys.argv + [20])[2]), int((sys.argv + [0, 3])[3]) if len(sys.argv) > 3 else 3
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        windows = prepare(bucket, scratch, millions)
        cases = {
            "lockstep": lambda local: [LOCKSTEP.parent / "bench_stream", f"s3://{bucket}/set", str(CONTEXT), str(BATCH), str(windows // BATCH - 1), local],
            **{name: lambda local, name=name: [sys.executable, __file__, "--consume", name, f"s3://{bucket}/{name}", local] for name in PEERS}}
        for turn in range(rounds):
            for name, command in cases.items():
                with tempfile.TemporaryDirectory() as local:
                    before = os.times()
                    done = subprocess.run(command(local), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    after = os.times()
                    cpu = after.children_user + after.children_system - before.children_user - before.children_system
                    answer = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
                    print(f"{turn} {name:9} first batch {answer.get('first_s', -1):6.2f} s  {answer.get('windows_ps', -1):9.0f} windows/s  "
                          f"processor {cpu:6.1f} s  load {os.getloadavg()[0]:.0f}", "" if answer else done.stderr[-500:], flush=True)


if __name__ == "__main__":
    consume(*sys.argv[2:]) if sys.argv[1] == "--consume" else main()
