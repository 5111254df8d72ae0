"""What docs and deploy say, compared with what there is: alerts, metrics, configuration keys, sub-commands, files."""

import pathlib
import re
import subprocess
import tempfile
import unittest
import urllib.request

import yaml

import daemon

ALERTS = daemon.ROOT / "deploy" / "prometheus" / "alerts.rules.yml"
RUNBOOK = daemon.ROOT / "docs" / "runbook"
PAGES = sorted(path for folder in ("docs", "deploy") for path in (daemon.ROOT / folder).rglob("*.md"))
METRICS = daemon.ROOT / "server" / "metrics"


def alerts():
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def exported():
    """Names of metrics, from the one place that has them all, with what Prometheus adds to histograms."""
    names = set()
    for path in METRICS.glob("*.cc"):
        names |= set(re.findall(r'"((?:onnxd|process)_[a-z0-9_]+)"', path.read_text()))
    return names | {f"{name}_{part}" for name in names for part in ("bucket", "sum", "count")}


def expressions():
    for path in [*(daemon.ROOT / "deploy" / "prometheus").glob("*.rules.yml")]:
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                yield path.name, rule["expr"]
    for path in [*(daemon.ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"), *PAGES]:
        yield path.name, path.read_text()


class Runbook(unittest.TestCase):
    def test_every_alert_has_a_page_a_test_and_a_severity(self):
        names = {rule["alert"] for rule in alerts()}
        self.assertGreater(len(names), 20)
        self.assertEqual(names, {path.stem for path in RUNBOOK.glob("Onnxd*.md")})
        tested = (ALERTS.parent / "alerts.test.yml").read_text()
        index = (RUNBOOK / "README.md").read_text()
        for rule in alerts():
            self.assertIn(f"alertname: {rule['alert']}\n", tested)
            self.assertEqual(rule["annotations"]["runbook"], f"docs/runbook/{rule['alert']}.md")
            line = next(line for line in index.splitlines() if f"[{rule['alert']}]" in line)
            self.assertTrue(line.endswith(f"| {rule['labels']['severity']} |"), line)

    def test_pages_say_what_to_look_at_and_what_to_do(self):
        for path in RUNBOOK.glob("Onnxd*.md"):
            text = path.read_text()
            self.assertTrue(text.startswith(f"# {path.stem}\n"), path)
            self.assertIn("**Look**" if "**Look**" in text else "`onnxd models list`", text, path)

    def test_metrics_that_are_named_are_exported(self):
        known, seen = exported(), set()
        recording = yaml.safe_load((ALERTS.parent / "recording.rules.yml").read_text())["groups"]
        recorded = {rule["record"] for group in recording for rule in group["rules"]}
        for name, text in expressions():
            for metric in re.findall(r"(?<![:\w/.@-])((?:onnxd|process)_[a-z0-9_]+)(?=[{\s\[)`\"]|$)", text):
                self.assertIn(metric, known, name)
                seen.add(metric)
            for record in re.findall(r"onnxd:(?!:)[a-z0-9_:]+", text):
                self.assertIn(record, recorded, name)
        self.assertGreater(len(seen), 30)

    def test_labels_that_alerts_select_are_there(self):
        with daemon.embedded() as served:
            text = urllib.request.urlopen(f"http://127.0.0.1:{served.metrics_port}/metrics").read().decode()
        for name, label, value in (("onnxd_model_state", "state", "unavailable"), ("onnxd_requests_shed_total", "reason", "drain"),
                                   ("onnxd_config_reloads_total", "result", "failed"), ("onnxd_tls_reloads_total", "result", "failed")):
            self.assertRegex(text, rf'\n{name}{{[^}}]*{label}="{value}"')

    def test_keys_and_commands_that_are_named_exist(self):
        with tempfile.TemporaryDirectory() as folder:
            empty = pathlib.Path(folder) / "onnxd.yaml"
            empty.write_text("")
            printed = subprocess.run([daemon.BINARY, "config", "print", empty], capture_output=True, text=True, check=True).stdout
        keys = {f"{section}.{key}" for section, values in yaml.safe_load(printed).items() for key in values}
        self.assertGreater(len(keys), 60)
        sections = {key.split(".")[0] for key in keys}
        found = 0
        for path in PAGES:
            for key in re.findall(r"`([a-z_]+\.[a-z0-9_]+)`", path.read_text()):
                if key.split(".")[0] in sections and not key.endswith((".yaml", ".py")):
                    self.assertTrue(key in keys or key.startswith("rollback."), f"{path}: {key}")
                    found += 1
        self.assertGreater(found, 30)
        commands = subprocess.run([daemon.BINARY, "--help"], capture_output=True, text=True, check=True).stdout
        for path in PAGES:
            for command in re.findall(r"(?:`|^)onnxd ([a-z]+) ", path.read_text(), re.MULTILINE):
                self.assertRegex(commands, rf"\n\s+{command}\s", path)

    def test_links_lead_to_files(self):
        for path in [*PAGES, daemon.ROOT / "README.md", daemon.ROOT / "ARCHITECTURE.md", daemon.ROOT / "bench" / "README.md"]:
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
                self.assertTrue((path.parent / target).exists(), f"{path}: {target}")

    def test_the_version_is_the_same_everywhere(self):
        version = re.search(r"project\(onnxd VERSION ([0-9.]+)", (daemon.ROOT / "CMakeLists.txt").read_text()).group(1)
        for name, pattern in (("Dockerfile", r'image.version="(.+)"'), ("deploy/kubernetes/base/kustomization.yaml", r"newTag: (.+)"),
                              ("deploy/kserve/cluster-serving-runtime.yaml", r"image: onnxd:(.+)")):
            self.assertEqual(re.findall(pattern, (daemon.ROOT / name).read_text()), [version], name)

    def test_dashboards_are_what_their_program_writes(self):
        source = daemon.ROOT / "deploy" / "grafana"
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([source / "generate-dashboards", folder], check=True)
            written = sorted(pathlib.Path(folder).iterdir())
            self.assertEqual(len(written), 2)
            for path in written:
                self.assertEqual(path.read_text(), (source / "dashboards" / path.name).read_text())


if __name__ == "__main__":
    unittest.main()
