package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/golden"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/kubefake"
)

const planFile = "testdata/plan.yaml"

// planCluster has three nodes with an H100 each: nothing holds the first, a pod that can leave
// the second, and one that cannot the third, together with a PodGroup.
func planCluster() (kube, ours []runtime.Object) {
	const whole = "gpu-0000-1b-00-0"
	for i, name := range []string{"node-a", "node-b", "node-c"} {
		node := nodeNamed(name)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		g := gpunodes.WithProfile(name, "").Had("", "balanced", v1beta1.ResultSucceeded, "", "", 42*time.Second, 0)
		g.Status.Node.GPUs = []v1beta1.GPUReport{{Name: whole, Vendor: "nvidia", ProductName: "NVIDIA H100 80GB HBM3", GPUModes: gpunodes.MIGOff}}
		if i > 0 {
			g.Status.Node.ClaimCount = int32(i)
			claim := &resourceapi.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
				Status: resourceapi.ResourceClaimStatus{
					Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
						{Driver: names.DriverName, Pool: name, Device: whole}, {Driver: "other", Pool: name, Device: whole},
					}}},
					ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "on-" + name}},
				},
			}
			if name == "node-c" {
				claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{APIGroup: "scheduling.k8s.io", Resource: "podgroups", Name: "workers"})
			}
			kube = append(kube, claim)
		}
		kube, ours = append(kube, node), append(ours, &g.GPUNode)
	}
	kube = append(kube, podIn("team", "on-node-b"))
	labelled := nodeNamed("node-d", names.LabelProfile, "whole")
	g := gpunodes.WithProfile("node-d", "whole")
	g.Status.Node.GPUCount = 1
	return append(kube, labelled), append(ours, &g.GPUNode)
}

func newPlanRun(t *testing.T, out *bytes.Buffer, evict func(pod string) error) *planRun {
	kube, ours := planCluster()
	p, own, err := readPlan(nil, planFile)
	require.NoError(t, err)
	k, c := kubefake.New(kube...), clientfake.New(ours...)
	clientfake.React(&k.Fake, "create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := a.(clienttesting.CreateAction)
		if !ok || a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		eviction := create.GetObject().(*policyv1.Eviction)
		assert.Equal(t, []string{metav1.DryRunAll}, eviction.DeleteOptions.DryRun)
		return true, nil, evict(eviction.Name)
	})
	clientfake.React(&c.Fake, "patch", "partitionplans", func(a clienttesting.Action) (bool, runtime.Object, error) {
		assert.Equal(t, []string{metav1.DryRunAll}, a.(clienttesting.PatchActionImpl).PatchOptions.DryRun)
		return true, p.DeepCopy(), nil
	})
	return &planRun{
		session: newSession(out, picture.Screen{Width: 100}, connection{read.Clients{Kubernetes: k, Ours: c}}),
		flags:   planFlags{file: planFile, unavailable: intstr.FromInt32(1)}, plan: p, own: own,
	}
}

func blocksNodeC(pod string) error {
	if pod != "on-node-c" {
		return nil
	}
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget always needs 1 healthy pods and has 1 currently"}}
	return err
}

func TestPlanDryRun(t *testing.T) {
	var out bytes.Buffer
	r := newPlanRun(t, &out, blocksNodeC)
	require.NoError(t, r.run(t.Context()))
	golden.Equal(t, "testdata/plan.txt", out.String())
	out.Reset()
	r = newPlanRun(t, &out, blocksNodeC)
	r.output = "json"
	require.NoError(t, r.run(t.Context()))
	golden.Equal(t, "testdata/plan.json", out.String())
}

// Of a plan that exists, age and status count, not what the file says of them.
func TestPlanThatExists(t *testing.T) {
	var out bytes.Buffer
	r := newPlanRun(t, &out, blocksNodeC)
	target, err := r.target(t.Context())
	require.NoError(t, err)
	r.plan.CreationTimestamp, r.plan.Status.Revision = metav1.Unix(1, 0), 9
	_, err = r.input(t.Context())
	require.NoError(t, err)
	assert.Zero(t, r.plan.CreationTimestamp)
	assert.Zero(t, r.plan.Status)

	// The revision is known by a hash of an earlier version.
	older := *r.plan.DeepCopy()
	older.CreationTimestamp = metav1.Unix(2, 0)
	older.Status.History = []v1beta1.PlanRevision{{RevisionReference: v1beta1.RevisionReference{Revision: 1, RevisionHash: target.Hash}}}
	_, err = r.Ours.PartitionPlans().Create(t.Context(), &older, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = r.input(t.Context())
	require.NoError(t, err)
	assert.Equal(t, older.CreationTimestamp.Unix(), r.plan.CreationTimestamp.Unix())
	assert.Equal(t, older.Status, r.plan.Status)
}

// A user with few rights is told what is not known.
func TestPlanDryRunWithoutRights(t *testing.T) {
	var out bytes.Buffer
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "x", errors.New("no"))
	r := newPlanRun(t, &out, func(string) error { return forbidden })
	ours := r.Ours.(*clientfake.Client)
	refuse := func(verb, resource string, err error) {
		clientfake.React(&ours.Fake, verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	}
	refuse("patch", "partitionplans", forbidden)
	require.NoError(t, r.run(t.Context()))
	assert.Contains(t, out.String(), "The API server has not checked the plan")
	assert.Contains(t, strings.Join(strings.Fields(out.String()), " "), "which pods of namespace team can be evicted is not known (you are not allowed to patch partitionplans.tranche.dev or to create pods/eviction)")
	refuse("list", "gpunodes", forbidden)
	require.ErrorContains(t, r.run(t.Context()), "list GPUNodes: ")
	r.own = nil
	require.EqualError(t, r.run(t.Context()), "PartitionProfile balanced, which PartitionPlan canary names, exists neither in testdata/plan.yaml nor in the cluster")
	refuse("list", "partitionplans", forbidden)
	require.ErrorContains(t, r.run(t.Context()), "list PartitionPlans: ")
	refuse("patch", "partitionplans", apierrors.NewInvalid(schema.GroupKind{Kind: v1beta1.PlanKind}, "canary", nil))
	require.ErrorContains(t, r.run(t.Context()), "check PartitionPlan canary by a dry run: ")
	refuse("patch", "partitionplans", apierrors.NewNotFound(schema.GroupResource{}, ""))
	require.ErrorContains(t, r.run(t.Context()), "the API server does not serve PartitionPlans: install the chart")
}

func TestReadPlan(t *testing.T) {
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "plan.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	const plan = "apiVersion: tranche.dev/v1beta1\nkind: PartitionPlan\nmetadata: {name: a}\nspec: {profileName: p, nodeSelector: {}}\n"
	for name, test := range map[string]struct{ text, err string }{
		"no plan":         {"kind: Namespace\n", " has no PartitionPlan"},
		"two plans":       {plan + "---\n" + plan, "there are two PartitionPlans; give one"},
		"unknown key":     {plan + "other: 1\n", `unknown field "other"`},
		"broken profile":  {plan + "---\nkind: PartitionProfile\nspec: {rules: [{mig: {mode: On}}]}\n", "mode"},
		"no YAML":         {"a: b: c", "yaml"},
		"others are left": {"---\n" + plan + "---\nkind: Pod\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, _, err := readPlan(nil, write(test.text))
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "a", p.Name)
		})
	}
	p, _, err := readPlan(strings.NewReader(plan), "-")
	require.NoError(t, err)
	assert.Equal(t, "p", p.Spec.ProfileName)
	_, _, err = readPlan(nil, "not-there.yaml")
	require.ErrorContains(t, err, "read not-there.yaml: ")
}

func TestFlagsOfPlan(t *testing.T) {
	for want, args := range map[string][]string{
		"name the file of the plan: kubectl tranche plan -f FILE": {"plan"},
		`--max-unavailable is "0": give 1 or more, or 1% to 100%`: {"plan", "-f", planFile, "--max-unavailable", "0"},
		`unsupported output format "xml": use json or yaml`:       {"plan", "-f", planFile, "-o", "xml"},
	} {
		_, err := run(t, args...)
		assert.EqualError(t, err, want, args)
	}
}
