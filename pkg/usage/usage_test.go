package usage_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/usage"
)

const metrics = `# HELP tranche_memory_used_bytes Memory in use.
# TYPE tranche_memory_used_bytes gauge
tranche_memory_used_bytes{gpu="gpu-a",device="gpu-a",type="gpu",uuid="GPU-a",parent_uuid="",gpu_instance_id="",profile="",namespace="",pod="",container="",claim=""} 30
tranche_memory_used_bytes{gpu="gpu-a",device="gpu-a-mig-1g-10gb-1",type="mig",uuid="MIG-10",parent_uuid="GPU-a",gpu_instance_id="10",profile="1g.10gb",namespace="team",pod="infer",container="one",claim="c"} 10
tranche_memory_used_bytes{gpu="gpu-a",device="gpu-a-mig-3g-40gb-4",type="mig",uuid="MIG-9",parent_uuid="GPU-a",gpu_instance_id="9",profile="3g.40gb",namespace="",pod="",container="",claim=""} 20
tranche_memory_used_bytes{gpu="gpu-a",device="gpu-a-mig-1g-10gb-2",type="mig",uuid="MIG-11",parent_uuid="GPU-a",gpu_instance_id="11",profile="1g.10gb",namespace="team",pod="",container="",claim="together"} 1
tranche_memory_used_bytes{gpu="gpu-a",device="gpu-a-mig-1g-10gb-2",type="mig",uuid="MIG-11",parent_uuid="GPU-a",gpu_instance_id="11",profile="1g.10gb",namespace="team",pod="",container="",claim="else"} 1
tranche_memory_used_bytes{gpu="gpu-b",device="gpu-b",type="gpu",uuid="GPU-b",namespace="",pod="",claim=""} 14
tranche_memory_used_bytes{gpu="gpu-b",device="gpu-b-memory-share",type="share",uuid="GPU-b",parent_uuid="GPU-b",namespace="team",pod="share-0",container="main",claim="s0"} 5
tranche_memory_used_bytes{gpu="gpu-b",device="gpu-b-memory-share",type="share",uuid="GPU-b",parent_uuid="GPU-b",namespace="team",pod="share-1",container="main",claim="s1"} 7
tranche_memory_used_bytes{gpu="gpu-b",device="gpu-b-memory-share",type="share",uuid="GPU-b",parent_uuid="GPU-b",namespace="team",pod="share-1",container="other",claim="s1"} 6
tranche_memory_used_bytes{gpu="gpu-c",device="gpu-c",type="gpu",uuid="GPU-c",namespace="team",pod="whole",claim="w"} 3
# TYPE tranche_memory_total_bytes gauge
tranche_memory_total_bytes{gpu="gpu-a",device="gpu-a",type="gpu",uuid="GPU-a",parent_uuid="",gpu_instance_id="",profile="",namespace="",pod="",container="",claim=""} 80
tranche_memory_total_bytes{gpu="gpu-b",device="gpu-b",type="gpu",uuid="GPU-b",namespace="",pod="",claim=""} 80
tranche_memory_total_bytes{gpu="gpu-b",device="gpu-b-memory-share",type="share",uuid="GPU-b",parent_uuid="GPU-b",namespace="team",pod="share-0",container="main",claim="s0"} 20
# TYPE tranche_compute_active_ratio gauge
tranche_compute_active_ratio{gpu="gpu-a",device="gpu-a",type="gpu",uuid="GPU-a",parent_uuid="",gpu_instance_id="",profile="",namespace="",pod="",container="",claim=""} 0.5
tranche_compute_active_ratio{gpu="gpu-a",device="gpu-a-mig-1g-10gb-1",type="mig",uuid="MIG-10",parent_uuid="GPU-a",gpu_instance_id="10",profile="1g.10gb",namespace="team",pod="infer",container="one",claim="c"} 0.25
tranche_compute_active_ratio{gpu="gpu-b",device="gpu-b",type="gpu",uuid="GPU-b",namespace="",pod="",claim=""} 0.25
# TYPE tranche_utilization_ratio gauge
tranche_utilization_ratio{gpu="gpu-a",type="gpu",uuid="GPU-a"} 0.4
tranche_utilization_ratio{gpu="gpu-c",type="gpu",uuid="GPU-c"} 0.6
# TYPE tranche_engine_active_ratio gauge
tranche_engine_active_ratio{gpu="gpu-a",type="gpu",uuid="GPU-a"} 0.2
# TYPE tranche_power_watts gauge
tranche_power_watts{gpu="gpu-a",type="gpu",uuid="GPU-a"} 300
tranche_power_watts{gpu="gpu-b",type="gpu",uuid="GPU-b"} 100
# TYPE tranche_claim_info gauge
tranche_claim_info{namespace="team"} 1
`

func parse(t *testing.T, text string) []usage.Row {
	t.Helper()
	rows, err := usage.Parse(strings.NewReader(text))
	require.NoError(t, err)
	return rows
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return string(out)
}

func TestNode(t *testing.T) {
	n := usage.NodeOf("node-a", parse(t, metrics))
	assert.Equal(t, "node-a", n.Name)
	assert.JSONEq(t, `{"memoryUsedBytes": 47, "memoryTotalBytes": 160, "computeActiveRatio": 0.375, "engineActiveRatio": 0.4, "powerWatts": 400}`, asJSON(t, n.Values))
	require.Len(t, n.GPUs, 3)
	assert.JSONEq(t, `{"name": "gpu-a", "uuid": "GPU-a", "memoryUsedBytes": 30, "memoryTotalBytes": 80, "computeActiveRatio": 0.5, "engineActiveRatio": 0.2, "powerWatts": 300, "partitions": [
		{"uuid": "MIG-9", "gpuInstanceID": "9", "profile": "3g.40gb", "memoryUsedBytes": 20},
		{"uuid": "MIG-10", "gpuInstanceID": "10", "profile": "1g.10gb", "memoryUsedBytes": 10, "computeActiveRatio": 0.25,
		 "users": [{"namespace": "team", "podName": "infer", "claimName": "c", "memoryUsedBytes": 10, "computeActiveRatio": 0.25}]},
		{"uuid": "MIG-11", "gpuInstanceID": "11", "profile": "1g.10gb", "memoryUsedBytes": 1, "users": [
		 {"namespace": "team", "claimName": "else", "memoryUsedBytes": 1}, {"namespace": "team", "claimName": "together", "memoryUsedBytes": 1}]}]}`, asJSON(t, n.GPUs[0]))
	assert.JSONEq(t, `{"name": "gpu-b", "uuid": "GPU-b", "memoryUsedBytes": 14, "memoryTotalBytes": 80, "computeActiveRatio": 0.25, "powerWatts": 100, "users": [
		{"namespace": "team", "podName": "share-0", "claimName": "s0", "memoryUsedBytes": 5, "memoryTotalBytes": 20}, {"namespace": "team", "podName": "share-1", "claimName": "s1", "memoryUsedBytes": 7}]}`,
		asJSON(t, n.GPUs[1]), "what the GPU uses is more than what its pods do; what is not known is not zero")
	assert.InDelta(t, 0.6, *n.GPUs[2].Engine, 0, "of models without averages")
	for range 20 {
		assert.Equal(t, n, usage.NodeOf("node-a", parse(t, metrics)), "the order is the same each time")
	}
}

// Without the GPU's own row, its pods' and its partitions' are all that is known.
func TestOnlyUsersAreKnown(t *testing.T) {
	n := usage.NodeOf("node-a", parse(t, `
tranche_memory_used_bytes{gpu="gpu-a",type="mig",uuid="MIG-1",parent_uuid="GPU-a"} 1
tranche_memory_used_bytes{gpu="gpu-a",type="xcp",gpu_instance_id="3"} 2
tranche_memory_used_bytes{gpu="gpu-a",type="xcp",profile="cpx"} 3
tranche_memory_used_bytes{gpu="gpu-b",type="share",uuid="GPU-b",parent_uuid="GPU-b",namespace="team",pod="share-0"} 5
tranche_memory_used_bytes{gpu="gpu-b",type="share",uuid="GPU-b",parent_uuid="GPU-b",namespace="team",pod="share-1"} 7
tranche_memory_total_bytes{gpu="gpu-b",type="share",uuid="GPU-b",parent_uuid="GPU-b",namespace="team",pod="share-1"} 20
`))
	assert.JSONEq(t, `[{"name": "gpu-a", "uuid": "GPU-a", "partitions": [
		{"profile": "cpx", "memoryUsedBytes": 3}, {"uuid": "MIG-1", "memoryUsedBytes": 1}, {"gpuInstanceID": "3", "memoryUsedBytes": 2}]},
		{"name": "gpu-b", "uuid": "GPU-b", "memoryUsedBytes": 12, "memoryTotalBytes": 20, "users": [
		{"namespace": "team", "podName": "share-0", "memoryUsedBytes": 5}, {"namespace": "team", "podName": "share-1", "memoryUsedBytes": 7, "memoryTotalBytes": 20}]}]`, asJSON(t, n.GPUs))
}

func TestPods(t *testing.T) {
	pods := usage.Pods([]usage.Node{usage.NodeOf("node-a", parse(t, metrics))})
	assert.JSONEq(t, `[
		{"namespace": "team", "podName": "infer", "nodeName": "node-a", "devices": [{"gpuName": "gpu-a", "uuid": "MIG-10", "type": "mig", "profile": "1g.10gb"}], "memoryUsedBytes": 10, "computeActiveRatio": 0.25},
		{"namespace": "team", "podName": "share-0", "nodeName": "node-a", "devices": [{"gpuName": "gpu-b", "uuid": "GPU-b", "type": "share"}], "memoryUsedBytes": 5, "memoryTotalBytes": 20},
		{"namespace": "team", "podName": "share-1", "nodeName": "node-a", "devices": [{"gpuName": "gpu-b", "uuid": "GPU-b", "type": "share"}], "memoryUsedBytes": 7},
		{"namespace": "team", "podName": "whole", "nodeName": "node-a", "devices": [{"gpuName": "gpu-c", "uuid": "GPU-c", "type": "gpu"}], "memoryUsedBytes": 3}]`, asJSON(t, pods.Items))
}

// Nodes of which nothing is known are told once for each reason.
func TestUnknownPods(t *testing.T) {
	away := errors.New("away")
	nodes := []usage.Node{usage.Unanswered("a", "x", away), {Name: "b", Old: "late"}}
	for _, name := range []string{"c", "d", "e"} {
		nodes = append(nodes, usage.Unanswered(name, "x", away))
	}
	pods := usage.Pods(nodes)
	assert.JSONEq(t, `{"items": [], "unread": [{"verb": "get", "resource": "pods/proxy", "namespace": "x", "message": "away", "consequence": "the pods of a, c, d and 1 more are not known"},
		{"message": "late", "consequence": "the values of the pods of b are old"}]}`, asJSON(t, pods))
}

// The means of a pod are of all its devices.
func TestPodWithSeveralDevices(t *testing.T) {
	pods := usage.Pods([]usage.Node{usage.NodeOf("node-b", parse(t, `
tranche_engine_active_ratio{node="node-a",gpu="gpu-a",uuid="GPU-a",namespace="x",pod="p"} 1
tranche_engine_active_ratio{gpu="gpu-b",uuid="GPU-b",namespace="x",pod="p"} 0.5
tranche_engine_active_ratio{gpu="gpu-c",uuid="GPU-c",namespace="y",pod="p"} 0
`))})
	require.Len(t, pods.Items, 2)
	assert.Equal(t, 0.75, *pods.Items[0].Engine)
	assert.Equal(t, []usage.Device{{GPU: "gpu-a", UUID: "GPU-a"}, {GPU: "gpu-b", UUID: "GPU-b"}}, pods.Items[0].Devices)
	assert.Equal(t, "node-b", pods.Items[0].Node, "whatever the metrics say: that of the plugin's pod")
	assert.Zero(t, *pods.Items[1].Engine)
}

func TestParseErrors(t *testing.T) {
	_, err := usage.Parse(strings.NewReader("<html>"))
	require.ErrorContains(t, err, "read metrics: ")
	assert.Empty(t, parse(t, ""))
	for _, value := range []string{"NaN", "+Inf", "-1", "1e16"} {
		rows := parse(t, "tranche_memory_used_bytes{gpu=\"a\"} "+value+"\n")
		assert.Equal(t, []usage.Row{{GPU: "a"}}, rows, value)
	}
	for _, name := range usage.Metrics() {
		assert.NotEqual(t, []usage.Row{{GPU: "a"}}, parse(t, name+"{gpu=\"a\"} 1\n"), name)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(metrics)
	f.Add("tranche_memory_used_bytes 1\ntranche_memory_used_bytes{gpu_instance_id=\"x\"} NaN\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := usage.Parse(strings.NewReader(text))
		if err == nil {
			usage.Pods([]usage.Node{usage.NodeOf("node", rows)})
		}
	})
}
