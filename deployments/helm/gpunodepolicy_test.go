package helm_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// TestGPUNodePolicy: a plugin creates the GPUNode of its node and reports there, and no
// more.
func TestGPUNodePolicy(t *testing.T) {
	objects := decode(t, render(t, chart))
	policy := policyNamed(t, objects, "-gpunodes")
	rule := policy.spec.MatchConstraints.ResourceRules[0]
	require.Equal(t, []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"}, rule.Operations)
	require.Equal(t, []string{"gpunodes", "gpunodes/*"}, rule.Resources)
	require.Equal(t, admissionregistrationv1.Fail, *policy.spec.FailurePolicy)
	require.True(t, policy.appliesTo("system:serviceaccount:tranche-system:tranche-kubelet-plugin"))
	require.False(t, policy.appliesTo("system:serviceaccount:tranche-system:tranche-controller"))
	require.False(t, policy.appliesTo("kubernetes-admin"))

	gpuNode := func(name string, more object) object {
		o := object{"apiVersion": "tranche.dev/v1beta1", "kind": "GPUNode", "metadata": object{"name": name}}
		maps.Copy(o, more)
		return o
	}
	desired := object{"profileName": "cpx", "source": "Label", "hash": "1"}
	before := gpuNode("node-a", object{
		"spec":   object{"profileName": "whole"},
		"status": object{"desired": desired, "state": "Planning", "node": object{"gpuCount": int64(8)}},
	})
	after := func(spec, status object) object { return gpuNode("node-a", object{"spec": spec, "status": status}) }
	report := object{"gpuCount": int64(7), "task": object{"switchID": "1", "state": "Planning", "phase": "Planned"}}
	const (
		noNode = "the token names no node: tranche-kubelet-plugin may write GPUNodes only from its pods, with the token that the kubelet mounts there"
		spec   = "tranche-kubelet-plugin may not say which profile a GPUNode should follow"
		status = "tranche-kubelet-plugin may report in status.node of a GPUNode only"
	)
	const meta = "tranche-kubelet-plugin may give a GPUNode no finalizer, and no owner but its own node"
	owned := func(kind, name string) object {
		return object{"apiVersion": "tranche.dev/v1beta1", "kind": "GPUNode", "metadata": object{"name": "node-a", "ownerReferences": list{
			object{"apiVersion": "v1", "kind": kind, "name": name, "uid": "1", "blockOwnerDeletion": true},
		}}}
	}
	staying := object{"apiVersion": "tranche.dev/v1beta1", "kind": "GPUNode", "metadata": object{"name": "node-a", "finalizers": list{"example.com/stay"}}}
	another := func(token, operation string) string {
		return "tranche-kubelet-plugin on node '" + token + "' may create and report on the GPUNode of that node only, and this is " + operation + " of GPUNode 'node-a'"
	}
	for name, test := range map[string]struct {
		operation, token string
		after            object
		want             string
	}{
		"creates its own":         {"CREATE", "node-a", gpuNode("node-a", nil), ""},
		"with an empty spec":      {"CREATE", "node-a", gpuNode("node-a", object{"spec": object{}}), ""},
		"creates another's":       {"CREATE", "node-b", gpuNode("node-a", nil), another("node-b", "CREATE")},
		"without a node":          {"CREATE", "", gpuNode("node-a", nil), noNode},
		"with a profile":          {"CREATE", "node-a", gpuNode("node-a", object{"spec": object{"profileName": "cpx"}}), spec},
		"with a state":            {"CREATE", "node-a", gpuNode("node-a", object{"status": object{"state": "Idle"}}), status},
		"owned by its node":       {"CREATE", "node-a", owned("Node", "node-a"), ""},
		"owned by another":        {"CREATE", "node-a", owned("Node", "node-b"), meta},
		"owned by something":      {"CREATE", "node-a", owned("PersistentVolume", "node-a"), meta},
		"with a finalizer":        {"CREATE", "node-a", staying, meta},
		"reports":                 {"UPDATE", "node-a", after(object{"profileName": "whole"}, object{"desired": desired, "state": "Planning", "node": report}), ""},
		"takes it back":           {"UPDATE", "node-a", after(object{"profileName": "whole"}, object{"desired": desired, "state": "Planning"}), ""},
		"on another":              {"UPDATE", "node-b", after(object{"profileName": "whole"}, object{"desired": desired, "state": "Planning", "node": report}), another("node-b", "UPDATE")},
		"another state":           {"UPDATE", "node-a", after(object{"profileName": "whole"}, object{"desired": desired, "state": "Idle", "node": report}), status},
		"another desired profile": {"UPDATE", "node-a", after(object{"profileName": "whole"}, object{"desired": object{"profileName": "spx"}, "state": "Planning"}), status},
		"no state":                {"UPDATE", "node-a", after(object{"profileName": "whole"}, object{"desired": desired, "node": report}), status},
		"history":                 {"UPDATE", "node-a", after(object{"profileName": "whole"}, object{"desired": desired, "state": "Planning", "history": []any{object{"result": "Succeeded"}}}), status},
		"no status":               {"UPDATE", "node-a", gpuNode("node-a", object{"spec": object{"profileName": "whole"}}), status},
		"another profile":         {"UPDATE", "node-a", after(object{"profileName": "cpx"}, object{"desired": desired, "state": "Planning"}), spec},
		"paused":                  {"UPDATE", "node-a", after(object{"profileName": "whole", "paused": true}, object{"desired": desired, "state": "Planning"}), spec},
		"deletes its own":         {"DELETE", "node-a", nil, another("node-a", "DELETE")},
		"deletes another's":       {"DELETE", "node-b", nil, another("node-b", "DELETE")},
		"deletes from nowhere":    {"DELETE", "", nil, noNode},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, policy.refusal(write{operation: test.operation, from: test.token, before: before, after: test.after}))
		})
	}
}
