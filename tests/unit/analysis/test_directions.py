"""Direction and unit by the name of a metric."""

from __future__ import annotations

import pytest

from perfrun.analysis.directions import direction_of, unit_of


@pytest.mark.parametrize(
    ("metric", "direction", "unit"),
    [
        ("max_batch_size", "higher", ""),
        ("scaling_efficiency", "higher", ""),
        ("wall_time", "lower", "s"),
        ("throughput", "higher", "1/s"),
        ("examples_per_second", "higher", "1/s"),
        ("exp_per_second", "higher", "1/s"),
        ("images_per_second_per_device", "higher", "1/s"),
        ("latency_p99_s", "lower", "s"),
        ("first_call_s", "lower", "s"),
        ("startup_time", "lower", ""),
        ("step_time_ms", "lower", "ms"),
        ("peak_rss_bytes", "lower", "bytes"),
        ("data_wait_share", "lower", ""),
        ("top_1_accuracy", "higher", ""),
        ("accuracy_top_5", "higher", ""),
        ("eval_loss", "lower", ""),
        ("cache_miss_rate", "lower", ""),
        ("error_rate", "lower", ""),
        ("gpu_utilization", "higher", ""),
        ("energy_j", "lower", "J"),
        ("acc", "higher", ""),
        ("time_to_accuracy_s", "lower", "s"),
        ("epochs_to_accuracy", "lower", ""),
        ("model_flops_utilisation", "higher", ""),
        ("achieved_flops_per_second", "higher", "1/s"),
        ("flops_per_example", "none", ""),
        ("flops", "none", ""),
        ("trainable_parameters", "none", ""),
        ("cold_start_s", "lower", "s"),
        ("framework_import_s", "lower", "s"),
        ("ingestion_efficiency", "higher", ""),
        ("power_efficiency", "higher", ""),
        ("fusion_speedup", "higher", ""),
        ("final_loss", "lower", ""),
        ("loss_scale", "none", ""),
        ("learning_rate", "none", ""),
        ("read_bytes_per_s", "higher", "bytes/s"),
        ("energy_per_example_j", "lower", "J"),
        ("epochs", "none", ""),
        ("n", "none", ""),
        ("batch_size", "none", ""),
    ],
)
def test_a_name_tells_direction_and_unit(metric: str, direction: str, unit: str) -> None:
    assert direction_of(metric) == direction
    assert unit_of(metric) == unit
