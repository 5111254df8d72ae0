"""A version that computes what others answer, too: its answers are compared and given to nobody."""

import http.client
import json
import re

from repositories import RepositoryCase, factor_model
from test_rollback import failing_model, renamed_model

BODY = json.dumps({"input": [[1, 1, 1, 1]]})
SHADOW = "versions: 3\nlabels:\n  next: 4\nshadow:\n  version: next\n"


class Shadow(RepositoryCase):
    """Version 3 of model `m` answers, version 4 gets copies."""

    def setUp(self):
        super().setUp()
        self.put(3, factor_model(3))

    def ask(self, served, requests, **headers):
        client = http.client.HTTPConnection("127.0.0.1", served.http_port, timeout=10)
        for _ in range(requests):
            client.request("POST", "/predict/m", BODY, headers)
            document = json.load(client.getresponse())
            self.assertEqual((document["model_version"], document["prediction"][0][0]), ("3", 3))
        client.close()

    def copies(self, served):
        """By what came of them."""
        text = self.get(served, "/metrics")[1]
        return {outcome: int(count) for outcome, count in re.findall(
            r'^onnxd_shadow_requests_total{model="m",outcome="(\w+)",version="4"} (\d+)', text, re.M)}

    def shadow(self, served):
        return self.get(served, "/v2/models/m/rollout")[1]["shadow"]

    def copied(self, served, requests):
        # Copies wait for a processor that does nothing else, which a busy machine has late.
        done = lambda: sum(self.copies(served).values()) >= requests
        self.assertTrue(self.eventually(done, timeout=90), self.copies(served))
        return self.copies(served)

    def test_what_agrees_is_counted(self):
        self.put(4, factor_model(3.0001))
        self.settings(SHADOW)
        served = self.serve()
        self.ask(served, 100)
        self.assertEqual(self.copied(served, 100), {"same": 100})
        self.assertEqual(self.shadow(served), {"version": "next", "percent": 100, "tolerance": 0.001, "differences": []})

    def test_what_differs_is_counted_and_the_last_are_shown(self):
        self.put(4, factor_model(3.1))
        self.settings(SHADOW + "  percent: 50\n")
        served = self.serve()
        self.ask(served, 40, **{"X-Request-Id": "mine"})
        self.assertEqual(self.copied(served, 20), {"different": 20})
        differences = self.shadow(served)["differences"]
        self.assertEqual(len(differences), 8)
        self.assertEqual({key: differences[0][key] for key in ("request_id", "version", "shadow_version")},
                         {"request_id": "mine", "version": "3", "shadow_version": "4"})
        self.assertRegex(differences[0]["difference"], "^output 'y': 4 of 4 elements differ, most at 0: got 3.09")

    def test_the_tolerance_is_the_settings(self):
        self.put(4, factor_model(3.1))
        self.settings(SHADOW + "  tolerance: 0.1\n")
        served = self.serve()
        self.ask(served, 20)
        self.assertEqual(self.copied(served, 20), {"same": 20})
        self.settings(SHADOW + "  tolerance: 0.0\n")
        self.assertTrue(self.eventually(lambda: self.shadow(served)["tolerance"] == 0))
        self.ask(served, 20)
        self.assertEqual(self.copied(served, 40), {"same": 20, "different": 20})

    def test_failures_are_counted_and_hurt_nobody(self):
        for content, reason in ((failing_model(), "'rows'|index"), (renamed_model(), "it also needs input 'other'")):
            self.put(4, content)
            self.settings(SHADOW)
            served = self.serve()
            self.ask(served, 30)
            self.assertEqual(self.copied(served, 30), {"failed": 30})
            self.assertRegex(self.shadow(served)["differences"][0]["difference"], reason)
            served.close()

    def test_one_that_differs_too_often_is_rolled_back_where_the_settings_say_so(self):
        self.put(4, factor_model(3.1))
        self.settings(SHADOW + "rollback:\n  mismatch_percent: 5\n")
        served = self.serve()
        self.ask(served, 60)
        self.assertTrue(self.eventually(lambda: self.get(served, "/v2/models/m/versions/4/ready")[0] != 200))
        rolled_back = lambda: self.get(served, "/v2/models/m/rollout")[1]["rolled_back"]
        self.assertTrue(self.eventually(rolled_back))  # it is taken out first
        (entry,) = rolled_back()
        self.assertRegex(entry["reason"], "of its last [0-9]+ answers to copies differ")
        self.ask(served, 10)

    def test_what_means_nothing_is_refused(self):
        self.put(4, factor_model(4))
        for settings, reason in (("shadow:\n  version: beta\n", "no version has the label 'beta'"),
                                 ("shadow:\n  version: latest\n", "must be the number of a version"),
                                 ("shadow:\n  percent: 101\n", "'shadow.percent'"),
                                 ("shadow:\n  tolerance: nan\n", "must be a number from 0 to 1"),
                                 ("shadow:\n  copies: 1\n", "shadow.copies")):
            self.settings(settings)
            served = self.serve()
            status, document = self.post(served, "/predict/m", {"input": [[1] * 4]})
            self.assertEqual(status, 503, settings)
            self.assertIn(reason, document["error"])
            served.close()
