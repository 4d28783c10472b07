package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// labelNodes has plugins write labels of GPUs, until the test ends.
func (s *suite) labelNodes(nodes ...string) {
	s.t.Helper()
	write := func(on bool) {
		for _, node := range nodes {
			if s.lab != nil {
				s.lab.nodes[node].Options.NodeLabels = on
				s.restartPlugin(node)
			}
		}
	}
	s.set("nodeLabels.enabled=true")
	s.t.Cleanup(func() {
		if write(false); s.lab == nil {
			s.helm("rollback", release, "--wait", "--timeout", "8m")
		}
		for _, node := range nodes {
			for key := range s.gpuLabels(node) {
				s.labelNode(node, key, "")
			}
		}
	})
	write(true)
}

// gpuLabels are the labels of a node that describe GPUs.
func (s *suite) gpuLabels(node string) map[string]string {
	s.t.Helper()
	n, err := s.client.CoreV1().Nodes().Get(s.ctx, node, metav1.GetOptions{})
	require.NoError(s.t, err)
	maps.DeleteFunc(n.Labels, func(key, _ string) bool {
		return !strings.HasPrefix(key, "nvidia.com/") && !strings.HasPrefix(key, "amd.com/")
	})
	return n.Labels
}

// waitGPULabels waits until the labels of a node are those of the words: "gpu.count=8".
func (s *suite) waitGPULabels(node, domain, words string) {
	s.t.Helper()
	s.eventually(node+" has the labels "+words, func() (bool, string) {
		var got []string
		for key, value := range s.gpuLabels(node) {
			got = append(got, strings.TrimPrefix(key, domain)+"="+value)
		}
		slices.Sort(got)
		want := strings.Fields(words)
		slices.Sort(want)
		return slices.Equal(want, got), strings.Join(got, " ")
	})
}

// For each way to share and partition, a node has the labels of GPU feature discovery and of AMD's
// node labeller: count times replicas is the number of nvidia.com/gpu.
func TestNodeLabels(t *testing.T) {
	onlyAtNight(t)
	s := start(t)
	s.labelNodes(nodeA, nodeC)
	const product = "NVIDIA-H100-80GB-HBM3"
	gpus := func(suffix string, count, replicas int, sharing string, memory int, strategy string) string {
		return fmt.Sprintf("gpu.product=%s gpu.count=%d gpu.replicas=%d gpu.sharing-strategy=%s gpu.memory=%d mig.strategy=%s", product+suffix, count, replicas, sharing, memory, strategy)
	}
	whole := gpus("", 8, 1, "none", 81559, "mixed")
	s.waitGPULabels(nodeA, "nvidia.com/", whole)
	for name, test := range map[string]struct{ rule, labels string }{
		"time-sliced": {`{gpus: {vendor: nvidia}, sharing: {strategy: TimeSlicing, replicas: 10}, extendedResource: {device: GPUReplica}}`,
			gpus("-SHARED", 8, 10, "time-slicing", 81559, "mixed")},
		"single": {`{gpus: {vendor: nvidia}, mig: {mode: Static, partitions: [{profile: 1g.10gb, count: 7}]}, extendedResource: {device: Partition, profile: 1g.10gb}}`,
			gpus("-MIG-1g.10gb", 8*7, 1, "none", 9984, "single")},
		// A partition that is not shared still stands for the resource of its profile.
		"single-time-sliced": {sevenSlices, gpus("-MIG-1g.10gb-SHARED", 8*7, 10, "time-slicing", 9984, "single") +
			" mig-1g.10gb.product=" + product + "-MIG-1g.10gb mig-1g.10gb.count=56 mig-1g.10gb.replicas=1 mig-1g.10gb.sharing-strategy=none mig-1g.10gb.memory=9984"},
		"mixed": {cutInThree, "gpu.product=" + product + " gpu.count=8 gpu.replicas=0 gpu.memory=81559 mig.strategy=mixed" +
			" mig-1g.10gb.product=" + product + "-MIG-1g.10gb mig-1g.10gb.count=16 mig-1g.10gb.replicas=1 mig-1g.10gb.sharing-strategy=none mig-1g.10gb.memory=9984" +
			" mig-3g.40gb.product=" + product + "-MIG-3g.40gb mig-3g.40gb.count=8 mig-3g.40gb.replicas=1 mig-3g.40gb.sharing-strategy=none mig-3g.40gb.memory=40448"},
	} {
		t.Run(name, func(t *testing.T) {
			s := s.on(t)
			s.followProfile(nodeA, name, test.rule)
			s.waitFollows(nodeA, name)
			s.waitGPULabels(nodeA, "nvidia.com/", test.labels)
		})
	}
	s.waitGPULabels(nodeA, "nvidia.com/", whole)

	amd := "gpu.product-name=AMD_Instinct_MI300X_OAM gpu.device-id=74a1 gpu.vram=192G gpu.cu-count=304"
	s.waitGPULabels(nodeC, "amd.com/", amd)
	s.follow(nodeC, "cpx-nps1")
	s.waitGPULabels(nodeC, "amd.com/", amd+" gpu.compute-memory-partition=cpx_nps1")
}

// Claims get the MIG profiles of a profile's list, and no others.
func TestListOfMIGProfiles(t *testing.T) {
	s := start(t)
	s.followProfile(nodeA, "small-only", `{gpus: {vendor: nvidia}, mig: {mode: Dynamic, profiles: [1g.10gb]}}`)
	s.waitFollows(nodeA, "small-only")
	s.gpuPod("small", class1g10gb)
	s.waitRunning("small")
	s.gpuPod("half", class3g40gb)
	s.waitUnschedulable("half")
}
