"""The YAML of docs/guide/cluster.md parses, and starts what the page says it starts."""

import re
from pathlib import Path

from tests.extras import optional

PAGE = Path(__file__).parents[1] / "docs/guide/cluster.md"
SHOWN = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)


def test_the_yaml_of_the_cluster_page_is_yaml() -> None:
    ray_up, kuberay = map(optional("yaml").safe_load, SHOWN)
    assert {"cluster_name", "provider", "available_node_types", "head_node_type"} <= set(ray_up)
    assert ray_up["available_node_types"][ray_up["head_node_type"]]["resources"] == {"CPU": 0}
    assert (kuberay["apiVersion"], kuberay["kind"]) == ("ray.io/v1", "RayJob")
    cluster = kuberay["spec"]["rayClusterSpec"]
    assert cluster["workerGroupSpecs"][0]["rayStartParams"]["disable-usage-stats"] == "true"
