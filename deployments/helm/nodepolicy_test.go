package helm_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestNodePolicy(t *testing.T) {
	policy := policyNamed(t, decode(t, render(t, chart, "--set", "nodeLabels.enabled=true")), "-plugin-nodes")
	require.True(t, policy.appliesTo("system:serviceaccount:tranche-system:tranche-kubelet-plugin"))
	require.False(t, policy.appliesTo("system:node:node-a"))

	node := func(labels object, more object) object {
		metadata := object{"name": "node-a", "labels": labels, "annotations": object{"a": "b"}}
		maps.Copy(metadata, more)
		return object{"metadata": metadata, "spec": object{"podCIDR": "10.0.0.0/24"}, "status": object{
			"capacity": object{"cpu": "8", "tranche.dev/gpu-memory": "0"}, "allocatable": object{"cpu": "8", "tranche.dev/gpu-memory": "0"},
			"nodeInfo": object{"architecture": "amd64"},
		}}
	}
	before := node(object{"zone": "a", "nvidia.com/gpu.count": "8"}, nil)
	cordoned := node(object{"zone": "a"}, nil)
	cordoned["spec"] = object{"podCIDR": "10.0.0.0/24", "unschedulable": true}
	status := func(resources object, more object) object {
		n := node(object{"zone": "a", "nvidia.com/gpu.count": "8"}, nil)
		s := object{"capacity": resources, "allocatable": resources, "nodeInfo": object{"architecture": "amd64"}}
		maps.Copy(s, more)
		n["status"] = s
		return n
	}
	const foreignResource = "tranche-kubelet-plugin may change only the resources tranche.dev/gpu-memory and tranche.dev/gpu-compute of its node"
	const foreignLabel = "tranche-kubelet-plugin may change only the labels ^(nvidia[.]com/(mig[.]strategy|(gpu|mig-[1-9][0-9]*g[.][1-9][0-9]*gb([.-][a-z.]+)?)[.](product|count|replicas|memory|sharing-strategy))|amd[.]com/gpu[.]((product-name|device-id|vram|cu-count)([.][A-Za-z0-9_.-]+)?|compute-memory-partition))$ of its node"
	for name, test := range map[string]struct {
		token string
		after object
		want  string
	}{
		"new labels": {"node-a", node(object{"zone": "a", "nvidia.com/gpu.count": "4", "nvidia.com/gpu.product": "x"}, nil), ""},
		"labels of MIG": {"node-a", node(object{"zone": "a", "nvidia.com/mig.strategy": "mixed", "nvidia.com/mig-1g.24gb.me.all.count": "4",
			"nvidia.com/mig-1g.24gb-me.product": "x", "nvidia.com/mig-1g.5gb.replicas": "10"}, nil), ""},
		"labels of AMD":            {"node-a", node(object{"zone": "a", "amd.com/gpu.vram": "192G", "amd.com/gpu.product-name.MI300X": "2", "amd.com/gpu.compute-memory-partition": "cpx_nps4"}, nil), ""},
		"AMD's operator's":         {"node-a", node(object{"zone": "a", "amd.com/gpu.deploy": "true"}, nil), foreignLabel},
		"mig-manager's":            {"node-a", node(object{"zone": "a", "nvidia.com/mig.config": "all-disabled"}, nil), foreignLabel},
		"the operator's":           {"node-a", node(object{"zone": "a", "nvidia.com/gpu.deploy.driver": "true"}, nil), foreignLabel},
		"removed":                  {"node-a", node(object{"zone": "a"}, nil), ""},
		"another node":             {"node-b", node(object{"zone": "a"}, nil), "tranche-kubelet-plugin on node 'node-b' may change that node only, and this is UPDATE of node 'node-a'"},
		"no node":                  {"", node(object{"zone": "a"}, nil), "tranche-kubelet-plugin on node '' may change that node only, and this is UPDATE of node 'node-a'"},
		"another label":            {"node-a", node(object{"zone": "b"}, nil), foreignLabel},
		"a label removed":          {"node-a", node(object{}, nil), foreignLabel},
		"a label added":            {"node-a", node(object{"zone": "a", "node-role.kubernetes.io/control-plane": ""}, nil), foreignLabel},
		"annotation":               {"node-a", node(object{"zone": "a"}, object{"annotations": object{}}), "tranche-kubelet-plugin may change only labels and GPU resources of its node"},
		"finalizer":                {"node-a", node(object{"zone": "a"}, object{"finalizers": []any{"x"}}), "tranche-kubelet-plugin may change only labels and GPU resources of its node"},
		"cordoned":                 {"node-a", cordoned, "tranche-kubelet-plugin may change only labels and GPU resources of its node"},
		"GPU resources":            {"node-a", status(object{"cpu": "8", "tranche.dev/gpu-memory": "640Gi", "tranche.dev/gpu-compute": "8k"}, nil), ""},
		"no GPU resources":         {"node-a", status(object{"cpu": "8"}, nil), ""},
		"another resource changed": {"node-a", status(object{"cpu": "9", "tranche.dev/gpu-memory": "1"}, nil), foreignResource},
		"another resource added":   {"node-a", status(object{"cpu": "8", "tranche.dev/other": "1"}, nil), foreignResource},
		"a resource removed":       {"node-a", status(object{"tranche.dev/gpu-memory": "1"}, nil), foreignResource},
		"another part of status":   {"node-a", status(object{"cpu": "8"}, object{"phase": "Running"}), "tranche-kubelet-plugin may change only labels and GPU resources of its node"},
		"labels where none":        {"node-a", object{"metadata": object{"name": "node-a", "annotations": object{"a": "b"}}, "spec": object{"podCIDR": "10.0.0.0/24"}}, foreignLabel},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, policy.refusal(write{operation: "UPDATE", from: test.token, before: before, after: test.after}))
		})
	}
}

// TestNodeLabelsOff: without the value, the plugin may not write nodes.
func TestNodeLabelsOff(t *testing.T) {
	patch := func(args ...string) (found bool) {
		for _, rule := range named[*rbacv1.ClusterRole](t, decode(t, render(t, chart, args...)), "tranche-kubelet-plugin").Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					found = found || resource == "nodes" && verb == "patch"
				}
			}
		}
		return found
	}
	require.False(t, patch())
	require.True(t, patch("--set", "nodeLabels.enabled=true"))
}
