# Clusters: the same descriptions given to TensorFlow's cluster resolvers and to Muster's. Tasks, addresses and what is said of
# this process must be the same; what TensorFlow refuses is refused here.
#
# Muster checks a description as a whole before it answers, so it may refuse what TensorFlow gives part of. It must not know
# what strategies do with a cluster.
import contextlib
import ctypes
import itertools
import json
import os
import random
import sys

import instance_groups
import muster
from report import Report

SEED, ROUNDS = 1, 150
REFUSED = "refused"
JOBS = ("worker", "ps", "chief", "evaluator", "x")
MASTERS = ((), ("worker", 1), ("ps", 0), ("worker", 9), ("zoo", 0))
TASKS = ('{"type": "worker", "index": 1}', '{"type": "ps", "index": "0"}', '{"type": "worker"}', '{"index": 1}', "{}",
         '{"type": 1, "index": "01"}', '{"type": "zoo", "index": 0}', '{"type": "", "index": "+1"}')
SPECS = ('{"worker": ["a:1", "b:2"], "ps": ["p:1"]}', '{"worker": ["a:1"]}', "{}", '{"worker": {"3": "x:1", "5": "y:2"}}',
         '{"worker": ["a:1", "b:2"], "ps": []}', '{"chief": ["c:1"], "worker": ["w:1"], "evaluator": ["e:1"]}', '{"worker": "a:1"}')
OTHERS = ("", '"rpc_layer": "grpc"', '"rpc_layer": null', '"session_master": "m:1", "rpc_layer": "grpc"', '"rpc_layer": ""')
HOSTS = ("n1", "n[1-3]", "n[01-03],m5", "n[9-11]", "b,a", "n[3,1]", "n[2-1]", "n[1-2", "n,,m", "n[1-2,5],n[7-8]", "n[008-010]")
COUNTS = ("1", "1,1", "1(x3)", "2(x2),1", "3", "1(x4)", "2(x", "1(x5)", "2,1", "a")


@contextlib.contextmanager
def environment(**variables):
    """Variables for both sides; None takes one away."""
    before = {name: os.environ.get(name) for name in variables}

    def put(values):
        for name, value in values.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
    put(variables)
    try:
        yield
    finally:
        put(before)


class JobSize(ctypes.Structure):
    _fields_ = [("job", ctypes.c_char_p), ("tasks", ctypes.c_int)]


def attempt(thunk):
    try:
        answer = thunk()
    except Exception:  # whatever TensorFlow says no with, and Muster's error
        return REFUSED
    return answer.decode() if isinstance(answer, bytes) else answer


def answers_of_tensorflow(cluster):
    """The specification's JSON as Muster writes it, then what a resolver says of this process."""
    def specification():
        jobs = cluster.cluster_spec().as_dict()
        return {job: tasks if isinstance(tasks, list) else {str(i): a for i, a in tasks.items()} for job, tasks in jobs.items()}

    yield "tasks", attempt(specification)
    yield "type", attempt(lambda: cluster.task_type)
    yield "index", attempt(lambda: cluster.task_id)
    yield "layer", attempt(lambda: cluster.rpc_layer)
    yield "environment", attempt(lambda: cluster.environment or "")
    for task in MASTERS:
        yield f"master{task}", attempt(lambda task=task: cluster.master(*task))


def answers_of_muster(mu, cluster):
    yield "tasks", attempt(lambda: json.loads(mu.mu_cluster_spec_json(mu.mu_cluster_get_spec(cluster))))
    yield "type", attempt(lambda: mu.mu_cluster_task_type(cluster))
    yield "index", attempt(lambda: (lambda index: None if index < 0 else index)(mu.mu_cluster_task_id(cluster)))
    yield "layer", attempt(lambda: mu.mu_cluster_rpc_layer(cluster))
    yield "environment", attempt(lambda: mu.mu_cluster_environment(cluster))
    for task in MASTERS:
        yield f"master{task}", attempt(lambda task=task: mu.mu_cluster_master(cluster, *task))


def compare(mu, theirs, ours):
    """Numbers of what agrees and texts of what does not. Muster may refuse all where TensorFlow refuses a part."""
    if REFUSED in (theirs, ours):
        return (1, []) if theirs == ours else (0, [f"TensorFlow {theirs}, Muster {ours}"])
    passed, failures, all_theirs = 0, [], list(answers_of_tensorflow(theirs))
    faulty = REFUSED in [answer for what, answer in all_theirs if not what.startswith("master")]
    for (what, one), (_, other) in zip(all_theirs, answers_of_muster(mu, ours), strict=True):
        empty = other == "" and str(one).endswith("://")  # a layer in front of no address
        if one == other or empty or (faulty and other == REFUSED):
            passed += 1
        else:
            failures.append(f"{what}: TensorFlow {one}, Muster {other}")
    return passed, failures


def simple(mu, resolvers, draw, least=0):
    """A pair of simple clusters of the same tasks, each job with `least` of them or more."""
    import tensorflow as tf

    jobs = {job: [f"{job}{i}:1" for i in range(draw.randrange(least, 4))] if draw.random() < 0.5 else
            {i: f"{job}{i}:2" for i in draw.sample(range(6), draw.randrange(least, 4))} for job in JOBS if draw.random() < 0.5}
    options = {key: draw.choice(values) for key, values in
               {"task_id": (0, 1, 3), "master": ("m:7",), "rpc_layer": ("grpc",), "environment": ("cloud",)}.items()
               if draw.random() < 0.4}
    if "task_id" in options:  # without an index a type has none in Python, and 0 in C
        options["task_type"] = draw.choice(("worker", "ps", "zoo"))
    spec = mu.mu_cluster_spec_parse(json.dumps(jobs))
    return resolvers.SimpleClusterResolver(tf.train.ClusterSpec(jobs), **options), mu.mu_simple_cluster_resolver(spec, **options)


def simple_clusters(mu, resolvers, draw):
    for i in range(ROUNDS):
        yield f"cluster {i}", *simple(mu, resolvers, draw)


def unions(mu, resolvers, draw):
    for i in range(ROUNDS):
        # Of a job that is empty in one of them Python's takes the indices of all.
        pairs = [simple(mu, resolvers, draw, 1) for _ in range(draw.randrange(1, 4))]
        options = {"task_id": 2} if draw.random() < 0.3 else {}
        yield (f"union {i}", resolvers.UnionResolver(*(theirs for theirs, _ in pairs), **options),
               mu.mu_union_cluster_resolver(resolvers=[*(ours for _, ours in pairs), mu.end], **options))


def tf_configs(mu, resolvers, _):
    for spec, task, other in itertools.product(SPECS, TASKS, OTHERS):
        text = ", ".join(filter(None, (f'"cluster": {spec}', f'"task": {task}', other)))
        for options in ({}, {"task_id": 1}, {"task_type": "ps", "rpc_layer": "http"}):
            with environment(TF_CONFIG=f"{{{text}}}"):
                yield (f"{text} {options}", resolvers.TFConfigClusterResolver(**options),
                       mu.mu_tf_config_cluster_resolver(**options))


def of_step(draw):
    """Variables of a job step, and the jobs that its tasks are to have."""
    counts = draw.choice(COUNTS)
    tasks = draw.randrange(1, 6)
    first = draw.randrange(tasks + 1)
    variables = {"SLURM_PROCID": str(draw.randrange(tasks)), "SLURM_STEP_NUM_TASKS": str(tasks),
                 "SLURM_STEP_NODELIST": draw.choice(HOSTS), "SLURM_STEP_TASKS_PER_NODE": counts, "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    return variables, {"ps": first, "worker": tasks - first} if draw.random() < 0.5 else None


def slurm(mu, resolvers, draw):
    """Python pairs hosts with counts as far as both go; Muster refuses lists of different lengths."""
    for _ in range(20 * ROUNDS):
        variables, jobs = of_step(draw)
        with environment(**variables):
            theirs = attempt(lambda jobs=jobs: resolvers.SlurmClusterResolver(jobs))
            if theirs != REFUSED:
                attempt(theirs.cluster_spec)  # finds the task, and sets the variable of the GPUs
        with environment(**variables):
            array = (JobSize * 3)(*(JobSize(job.encode(), n) for job, n in (jobs or {}).items()))
            ours = attempt(lambda: mu.mu_slurm_cluster_resolver(jobs=ctypes.addressof(array) if jobs else None))
            yield f"{variables} {jobs}", theirs if lengths_agree(variables) else REFUSED, ours


def sagemaker(mu, _, draw):
    from tensorflow.python.distribute.cluster_resolver.sagemaker_cluster_resolver import SageMakerClusterResolver  # not public

    # Muster takes an empty variable for one that is not set.
    lists = (None, "[]", "{", '["a"]', '["b", "a"]', '["algo-2", "algo-10", "algo-1"]', '["a", "a", "b"]')
    options = ({}, {"port": 7}, {"task_id": 1}, {"task_type": "x", "rpc_layer": "grpc"}, {"environment": "cloud"})
    for hosts, own, given in itertools.product(lists, (None, "a", "b", "algo-10"), options):
        with environment(SM_HOSTS=hosts, SM_CURRENT_HOST=own):
            yield (f"{hosts} {own} {given}", SageMakerClusterResolver(**given), mu.mu_sagemaker_cluster_resolver(**given))


def gce(mu, resolvers, draw):
    groups = {f"group{i}": instance_groups.Group(draw) for i in range(ROUNDS // 5)}
    with instance_groups.api_of(groups) as url:
        for name, group in groups.items():
            options = {key: draw.choice(values) for key, values in
                       {"task_type": ("ps", "worker"), "task_id": (1, 5), "rpc_layer": ("http",)}.items() if draw.random() < 0.4}
            port = draw.choice((1, 8470, 65535))
            yield (f"{name} {options}", resolvers.GCEClusterResolver("p", "z", name, port, service=group, **options),
                   mu.mu_gce_cluster_resolver("p", "z", name, port, token="t", api=url, **options))


def lengths_agree(variables):
    from tensorflow.python.distribute.cluster_resolver.slurm_cluster_resolver import (  # not public
        expand_hostlist, expand_tasks_per_node)

    try:
        hosts = expand_hostlist(variables["SLURM_STEP_NODELIST"])
        return len(hosts) == len(expand_tasks_per_node(variables["SLURM_STEP_TASKS_PER_NODE"]))
    except ValueError:  # refused for that
        return True


def main(library, text=""):
    import tensorflow as tf

    mu = muster.Library(library)
    report = Report("clusters")
    for rows in (simple_clusters, unions, tf_configs, slurm, sagemaker, gce):
        if text not in rows.__name__:
            continue
        passed, failures = 0, []
        with report.guard(rows.__name__), mu.pool():
            for name, theirs, ours in rows(mu, tf.distribute.cluster_resolver, random.Random(SEED)):
                agreed, wrong = compare(mu, theirs, ours)
                passed += agreed
                failures += [f"{name}: {one}" for one in wrong]
            report.row(rows.__name__, f"{passed} answers", passed, failures)
    return report


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]).finish())
