package helm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// allocated is a claim that holds devices, each given by its driver and its pool.
func allocated(pairs ...string) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"},
		Status: resourceapi.ResourceClaimStatus{
			Allocation:  &resourceapi.AllocationResult{},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod", UID: "1"}},
		},
	}
	for i := 0; i < len(pairs); i += 2 {
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: pairs[i], Pool: pairs[i+1], Device: "gpu-0"})
	}
	return claim
}

// reported is a claim's successor, in which a driver reports on a device of a pool.
func reported(claim *resourceapi.ResourceClaim, driver, pool string) *resourceapi.ResourceClaim {
	claim = claim.DeepCopy()
	claim.Status.Devices = append(claim.Status.Devices, resourceapi.AllocatedDeviceStatus{
		Driver: driver, Pool: pool, Device: "gpu-0",
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Prepared"}},
		Data:       &runtime.RawExtension{Raw: []byte(`{"uuid":"GPU-1"}`)},
	})
	return claim
}

// TestClaimStatusPolicy: of claims, a plugin changes what status.devices says of its own
// node's devices, whatever the API server authorizes.
func TestClaimStatusPolicy(t *testing.T) {
	policy := policyNamed(t, decode(t, render(t, chart)), "-claim-status")
	require.Equal(t, admissionregistrationv1.Fail, *policy.spec.FailurePolicy)
	require.Equal(t, []string{"resourceclaims", "resourceclaims/*"}, policy.spec.MatchConstraints.ResourceRules[0].Resources)
	require.False(t, policy.appliesTo("system:kube-scheduler"))

	const (
		noNode   = "the token names no node: tranche-kubelet-plugin may write the status of ResourceClaims only from its pods, with the token that the kubelet mounts there"
		devices  = "tranche-kubelet-plugin may change status.devices of ResourceClaims only"
		others   = "tranche-kubelet-plugin may change status.devices of ResourceClaims only for devices of gpu.tranche.dev"
		elsewhat = "tranche-kubelet-plugin on node 'node-a' may change the status only of ResourceClaims that have devices of gpu.tranche.dev on that node"
	)
	mine := allocated(driver, "node-a")
	both := reported(allocated(driver, "node-a", "nic.example.com", "node-a"), "nic.example.com", "node-a")
	with := func(change func(*resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
		claim := reported(mine, driver, "node-a")
		change(claim)
		return claim
	}
	for name, test := range map[string]struct {
		operation, subresource, tokenNode string
		before, after                     *resourceapi.ResourceClaim
		want                              string
	}{
		"reports":                    {"UPDATE", "status", "node-a", mine, reported(mine, driver, "node-a"), ""},
		"in a pool below the node's": {"UPDATE", "status", "node-a", allocated(driver, "node-a/gpu-0"), reported(allocated(driver, "node-a/gpu-0"), driver, "node-a/gpu-0"), elsewhat},
		"takes it back":              {"UPDATE", "status", "node-a", reported(mine, driver, "node-a"), mine, ""},
		"beside another driver":      {"UPDATE", "status", "node-a", both, reported(both, driver, "node-a"), ""},
		"for another driver":         {"UPDATE", "status", "node-a", mine, reported(mine, "nic.example.com", "node-a"), others},
		"removes another driver's":   {"UPDATE", "status", "node-a", both, allocated(driver, "node-a", "nic.example.com", "node-a"), others},
		"on another node":            {"UPDATE", "status", "node-a", allocated(driver, "node-b"), reported(allocated(driver, "node-b"), driver, "node-b"), elsewhat},
		"on a node with more name":   {"UPDATE", "status", "node-a", allocated(driver, "node-ab"), reported(allocated(driver, "node-ab"), driver, "node-ab"), elsewhat},
		"of another driver":          {"UPDATE", "status", "node-a", allocated("nic.example.com", "node-a"), reported(allocated("nic.example.com", "node-a"), driver, "node-a"), elsewhat},
		"not allocated":              {"UPDATE", "status", "node-a", &resourceapi.ResourceClaim{}, &resourceapi.ResourceClaim{}, elsewhat},
		"without a node":             {"UPDATE", "status", "", mine, reported(mine, driver, "node-a"), noNode},
		"takes the allocation away":  {"UPDATE", "status", "node-a", mine, with(func(c *resourceapi.ResourceClaim) { c.Status.Allocation = nil }), devices},
		"allocates":                  {"UPDATE", "status", "node-a", &resourceapi.ResourceClaim{}, mine, devices},
		"another device":             {"UPDATE", "status", "node-a", mine, with(func(c *resourceapi.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Device = "gpu-1" }), devices},
		"reserves for another pod":   {"UPDATE", "status", "node-a", mine, with(func(c *resourceapi.ResourceClaim) { c.Status.ReservedFor[0].Name = "other" }), devices},
		"takes the reservation":      {"UPDATE", "status", "node-a", mine, with(func(c *resourceapi.ResourceClaim) { c.Status.ReservedFor = nil }), devices},
		"the claim itself":           {"UPDATE", "", "node-a", mine, mine, "tranche-kubelet-plugin may change the status of ResourceClaims only, and this is UPDATE"},
		"creates one":                {"CREATE", "", "node-a", nil, mine, "tranche-kubelet-plugin may change the status of ResourceClaims only, and this is CREATE"},
		"deletes one":                {"DELETE", "", "node-a", mine, nil, "tranche-kubelet-plugin may change the status of ResourceClaims only, and this is DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, policy.refusal(write{
				operation: test.operation, subresource: test.subresource, from: test.tokenNode, before: test.before, after: test.after,
			}))
		})
	}
}
