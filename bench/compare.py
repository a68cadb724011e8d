#!/usr/bin/env python3
"""Troupe beside its yardsticks, in turns, in one run.

  compare.py gemm --troupe ./troupe     matrix products beside numpy's OpenBLAS
  compare.py step --troupe ./troupe     training steps beside PyTorch (torch_gpt.py), eager and compiled

Run it with the Python of a virtual environment that has numpy and threadpoolctl (gemm) or torch
(step); docs/performance.md says how to make one. On a machine that others use, too, speeds come and
go within minutes: so the two take turns, every round gives a ratio of its own, and the median counts.
A ratio over 1 says that Troupe is faster. The last line is one JSON object.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

# Set on some machines for the sake of old builds of OpenBLAS; they slow a current one.
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    if os.environ.pop(name, None) is not None:
        os.execv(sys.executable, [sys.executable] + sys.argv)

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = "512x512x512 768x3072x1024 1024x3072x768 64x768x768 256x50304x768"
# (layers, width, heads, context, batch, vocabulary)
MODELS = "6,384,6,256,8,256 12,768,12,256,4,256 4,128,4,128,32,256 6,384,6,256,8,50304"


def last_json(command):
    """The object on the last line of what a command prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def numpy_product(m, n, k, repetitions):
    """Seconds of one numpy product, timed as `troupe bench gemm` times: the median of repetitions of about 2 ms."""
    import numpy

    rng = numpy.random.default_rng(1)
    a = rng.uniform(-1, 1, (m, k)).astype(numpy.float32)
    b = rng.uniform(-1, 1, (k, n)).astype(numpy.float32)
    c = numpy.zeros((m, n), numpy.float32)
    numpy.matmul(a, b, out=c)
    began = time.perf_counter()
    numpy.matmul(a, b, out=c)
    times = max(1, int(2e-3 / (time.perf_counter() - began)))
    samples = []
    for _ in range(repetitions):
        began = time.perf_counter()
        for _ in range(times):
            numpy.matmul(a, b, out=c)
        samples.append((time.perf_counter() - began) / times)
    return statistics.median_low(samples)


def gemm(o):
    from threadpoolctl import threadpool_info, threadpool_limits

    import numpy  # loads OpenBLAS, so that its pool is seen below

    blas = [p for p in threadpool_info() if p["user_api"] == "blas"]
    print("numpy", numpy.__version__, ", ".join(f"{p['internal_api']} {p['version']} ({p.get('architecture')})" for p in blas))
    print(f"{'shape':>16} {'threads':>7} {'troupe':>8} {'numpy':>8} {'peak':>8} {'ratio':>6}   GFLOP/s, medians; ratios of the rounds")
    results = []
    for shape in o.shapes.split():
        m, n, k = (int(x) for x in shape.split("x"))
        flop = 2e-9 * m * n * k
        for threads in (int(t) for t in o.threads.split(",")):
            rounds = []
            for _ in range(o.rounds):
                t = last_json([o.troupe, "bench", "gemm", "--shape", shape, "--threads", str(threads), "--repeat", str(o.repeat), "--json"])["results"][0]
                with threadpool_limits(limits=threads, user_api="blas"):
                    rounds.append((t["gflops"], flop / numpy_product(m, n, k, o.repeat), t["peak_gflops"]))
            ours, theirs, peak = (statistics.median(column) for column in zip(*rounds))
            ratios = [a / b for a, b, _ in rounds]
            ratio = statistics.median(ratios)
            print(f"{shape:>16} {threads:>7} {ours:>8.1f} {theirs:>8.1f} {peak:>8.1f} {ratio:>6.3f}   " + " ".join(f"{r:.2f}" for r in ratios), flush=True)
            results.append(dict(shape=shape, threads=threads, gflops=ours, numpy_gflops=theirs, peak_gflops=peak, ratio=ratio, ratios=ratios))
    return dict(numpy=numpy.__version__, blas=blas, results=results)


def step(o):
    print(f"{'layers width heads context batch vocab':>40} {'threads':>7} {'troupe':>8} {'eager':>8} {'compiled':>8} {'ratio':>6}   ms a step, medians; ratios of the rounds")
    results = []
    for shape in o.models.split():
        values = shape.split(",")
        names = ("layers", "width", "heads", "context", "batch", "vocab")
        flags = [x for name, value in zip(names, values) for x in ("--" + name, value)]
        for threads in (int(t) for t in o.threads.split(",")):
            common = flags + ["--threads", str(threads)]
            torch = [sys.executable, os.path.join(HERE, "torch_gpt.py")] + common + ["--steps", str(o.steps + 2)]
            troupe = [o.troupe, "bench", "step"] + common + ["--steps", str(o.steps), "--warmup", "2", "--json"]
            if o.micro_batch:
                troupe += ["--micro-batch", str(o.micro_batch)]
            rounds = []
            for _ in range(o.rounds):
                eager = last_json(torch)
                ours = last_json(troupe)
                compiled = last_json(torch + ["--compile"]) if o.compile else None
                if ours["parameters"] != eager["parameters"]:
                    raise SystemExit(f"{shape}: {ours['parameters']} parameters beside {eager['parameters']}: not the same model")
                rounds.append((ours, eager, compiled))
            mine = [1e3 * r[0]["step_seconds"] for r in rounds]
            eager = [1e3 * r[1]["step_seconds"] for r in rounds]
            compiled = [1e3 * r[2]["step_seconds"] for r in rounds] if o.compile else eager
            # The better of the two ways to run PyTorch, as its medians say.
            best = min(eager, compiled, key=statistics.median)
            ratios = [b / a for a, b in zip(mine, best)]
            ratio = statistics.median(ratios)
            median = statistics.median
            print(f"{' '.join(values):>40} {threads:>7} {median(mine):>8.1f} {median(eager):>8.1f} {median(compiled):>8.1f} {ratio:>6.3f}   "
                  + " ".join(f"{r:.2f}" for r in ratios), flush=True)
            results.append(dict(zip(names, map(int, values)), threads=threads, torch=rounds[0][1]["torch"], parameters=rounds[0][0]["parameters"],
                                milliseconds=median(mine), eager_milliseconds=median(eager),
                                compiled_milliseconds=median(compiled) if o.compile else None, ratio=ratio, ratios=ratios,
                                peak_share=median(r[0]["peak_share"] for r in rounds), gflops=median(r[0]["gflops"] for r in rounds),
                                peak_gflops=median(r[0]["peak_gflops"] for r in rounds)))
    return dict(results=results)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="what", required=True)
    for name, run in (("gemm", gemm), ("step", step)):
        s = sub.add_parser(name)
        s.set_defaults(run=run)
        s.add_argument("--troupe", default="troupe", help="the binary")
        s.add_argument("--rounds", type=int, default=5)
    g, s = sub.choices["gemm"], sub.choices["step"]
    g.add_argument("--shapes", default=SHAPES, help="MxNxK, with spaces between them")
    g.add_argument("--threads", default="1,2")
    g.add_argument("--repeat", type=int, default=15)
    s.add_argument("--models", default=MODELS, help="layers,width,heads,context,batch,vocabulary, with spaces between them")
    s.add_argument("--threads", default=str(os.cpu_count()))
    s.add_argument("--steps", type=int, default=8)
    s.add_argument("--micro-batch", type=int, default=0, help="of Troupe; 0: the whole batch, as in PyTorch")
    s.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    o = p.parse_args()
    if os.sep in o.troupe:
        o.troupe = os.path.abspath(o.troupe)
    print(json.dumps(o.run(o)))


main()
