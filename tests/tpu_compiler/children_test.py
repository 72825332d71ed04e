"""Without the TPU compiler's packages, what to install is said before anything is traced."""

from __future__ import annotations

import importlib.util

import pytest

from tf_wu_shard.tpu_compiler import children
from tf_wu_shard.tpu_compiler.children import MissingCompilerError, check_compiler


def test_missing_packages_are_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    missing = {"jax", "libtpu"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find("json")
    )
    with pytest.raises(MissingCompilerError) as raised:
        check_compiler()
    assert "(jax, libtpu)" in str(raised.value) and "tf-wu-shard[tpu-compile]" in str(raised.value)
    missing.clear()
    check_compiler()


def test_a_compiler_has_its_devices_beside_the_users_own_flags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[dict[str, str]] = []
    monkeypatch.setenv("XLA_FLAGS", "--xla_mine=1")
    # JAX sets it in the process that imports it, which may be this one.
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
    monkeypatch.setattr(children, "check_compiler", lambda: None)
    monkeypatch.setattr(
        children, "Worker", lambda name, command, environment: started.append(environment)
    )
    children.compiler(cpu_devices=3)
    children.tracer()
    compiler, tracer = started
    flags = compiler["XLA_FLAGS"].split()
    assert flags == ["--xla_mine=1", "--xla_force_host_platform_device_count=3"]
    assert tracer["XLA_FLAGS"] == "--xla_mine=1" and "TPU_SKIP_MDS_QUERY" not in tracer
    assert {compiler["CUDA_VISIBLE_DEVICES"], tracer["CUDA_VISIBLE_DEVICES"]} == {""}
