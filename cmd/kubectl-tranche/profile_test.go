package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
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

// follows is a GPUNode that follows a profile.
func follows(name, profile string) *v1beta1.GPUNode {
	return &gpunodes.WithProfile(name, profile).GPUs(gpunodes.MIGOn, "gpu-a").GPUNode
}

func profileNamed(name string) *v1beta1.PartitionProfile {
	return &v1beta1.PartitionProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func nodeNamed(name string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

func newRun(out *bytes.Buffer, node *corev1.Node, ours ...runtime.Object) *profileRun {
	return &profileRun{
		session: newSession(out, picture.Screen{Width: 80}, connection{read.Clients{Kubernetes: kubefake.New(node), Ours: clientfake.New(ours...)}}),
		node:    "node-a", flags: profileFlags{timeout: time.Minute},
	}
}

func (r *profileRun) labelNow(t *testing.T) string {
	n, err := r.Kubernetes.CoreV1().Nodes().Get(t.Context(), r.node, metav1.GetOptions{})
	require.NoError(t, err)
	return n.Labels[names.LabelProfile]
}

func TestSetProfile(t *testing.T) {
	paused := follows("node-a", "old")
	paused.Spec.Paused = true
	amdOnly, h100Node := profileNamed("cpx"), follows("node-a", "old")
	amdOnly.Spec.Rules = []v1beta1.Rule{{GPUs: &v1beta1.GPUSelector{Vendor: "amd"}, XCP: &v1beta1.XCP{ComputePartition: "CPX"}}}
	h100Node.Status.Node.GPUs = []v1beta1.GPUReport{{Name: "gpu-0000-1b-00-0", Vendor: "nvidia", ProductName: "NVIDIA H100 80GB HBM3", GPUModes: gpunodes.MIGOff}}
	objects := func(n *v1beta1.GPUNode) []runtime.Object { // in the order of the alphabet, or not
		all := []runtime.Object{profileNamed("spx"), profileNamed("cpx")}
		if n != nil {
			all = append(all, n)
		}
		return all
	}
	for name, test := range map[string]struct {
		node      *corev1.Node
		ours      []runtime.Object
		profile   string
		wait      bool
		says      string
		err       string
		wantLabel string
	}{
		"no rule for its GPUs": {node: nodeNamed("node-a"), ours: []runtime.Object{amdOnly, h100Node}, profile: "cpx", wantLabel: "cpx",
			says: "Labelled node-a: tranche.dev/profile=cpx.\nNo rule of profile cpx selects a GPU of node-a: the profile changes nothing there.\nTo see its progress: kubectl tranche node node-a\n"},
		"set": {node: nodeNamed("node-a"), ours: objects(follows("node-a", "old")), profile: "cpx", wantLabel: "cpx",
			says: "Labelled node-a: tranche.dev/profile=cpx.\nTo see its progress: kubectl tranche node node-a\n"},
		"set again": {node: nodeNamed("node-a", names.LabelProfile, "cpx"), ours: objects(follows("node-a", "cpx")), profile: "cpx", wantLabel: "cpx",
			says: "node-a already has the label tranche.dev/profile=cpx.\nTo see its progress: kubectl tranche node node-a\n"},
		"unset": {node: nodeNamed("node-a", names.LabelProfile, "cpx", "other", "stays"), ours: objects(follows("node-a", "cpx")),
			says: "Removed the label tranche.dev/profile=cpx from node-a.\nTo see its progress: kubectl tranche node node-a\n"},
		"unset nothing": {node: nodeNamed("node-a"), ours: objects(follows("node-a", "")),
			says: "node-a has no label tranche.dev/profile.\nTo see its progress: kubectl tranche node node-a\n"},
		"no such profile": {node: nodeNamed("node-a"), ours: objects(follows("node-a", "old")), profile: "cpxx",
			err: "PartitionProfile cpxx does not exist; did you mean cpx? Those that fit your GPUs: kubectl tranche profiles"},
		"no profiles": {node: nodeNamed("node-a"), ours: []runtime.Object{follows("node-a", "old")}, profile: "cpx",
			err: "PartitionProfile cpx does not exist, and there are no others"},
		"no such node": {node: nodeNamed("node-b"), ours: objects(nil), profile: "cpx", err: `read node node-a: nodes "node-a" not found`},
		"control plane": {node: nodeNamed("node-a", controlPlaneLabel, ""), ours: objects(follows("node-a", "old")), profile: "cpx",
			err: `node-a belongs to the control plane, where the label tranche.dev/profile is ignored; set the profile in its GPUNode: ` +
				`kubectl patch gpunode node-a --type=merge -p '{"spec":{"profileName":"cpx"}}'`},
		"no GPUNode": {node: nodeNamed("node-a"), ours: objects(nil), profile: "cpx", wantLabel: "cpx",
			says: "Labelled node-a: tranche.dev/profile=cpx.\nGPUNode node-a does not exist yet; the profile is applied as soon as the plugin runs on the node.\n"},
		"no GPUNode to wait for": {node: nodeNamed("node-a"), ours: objects(nil), profile: "cpx", wait: true, err: "GPUNode node-a does not exist; the plugin on the node creates it (see kubectl get gpunodes): "},
		"paused": {node: nodeNamed("node-a"), ours: objects(paused), profile: "cpx", wantLabel: "cpx",
			says: "Labelled node-a: tranche.dev/profile=cpx.\nspec.paused of GPUNode node-a is true, so the node keeps its applied profile.\n"},
		"paused, and wait": {node: nodeNamed("node-a"), ours: objects(paused), profile: "cpx", wait: true, wantLabel: "cpx",
			says: "Labelled node-a: tranche.dev/profile=cpx.\n", err: "spec.paused of GPUNode node-a is true, so the node keeps its applied profile; nothing to wait for"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := newRun(&out, test.node, test.ours...)
			r.flags.wait = test.wait
			err := r.set(t.Context(), test.profile)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err)
			}
			assert.Equal(t, test.says, out.String())
			if test.node.Name == "node-a" {
				assert.Equal(t, test.wantLabel, r.labelNow(t))
			}
		})
	}
}

func TestSetProfileDryRun(t *testing.T) {
	var out bytes.Buffer
	plan := newPlanRun(t, &out, blocksNodeC)
	_, err := plan.Ours.(*clientfake.Client).PartitionProfiles().Create(t.Context(), &plan.own[0], metav1.CreateOptions{})
	require.NoError(t, err)
	for _, node := range []string{"node-a", "node-b", "node-c"} {
		r := &profileRun{session: plan.session, node: node, flags: profileFlags{dryRun: true}}
		require.NoError(t, r.set(t.Context(), "balanced"))
		assert.Empty(t, r.labelNow(t))
	}
	golden.Equal(t, "testdata/set-profile.txt", out.String())
}

func TestSetProfileWithoutRights(t *testing.T) {
	var out bytes.Buffer
	r := newRun(&out, nodeNamed("node-a"), profileNamed("cpx"), follows("node-a", "old"))
	kube := r.Kubernetes.(*fake.Clientset)
	clientfake.React(&kube.Fake, "patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-a", errors.New("no"))
	})
	err := r.set(t.Context(), "cpx")
	require.ErrorContains(t, err, `label node node-a: nodes "node-a" is forbidden`)
	require.ErrorContains(t, err, `if the node has no label tranche.dev/profile, set the profile there: kubectl patch gpunode node-a --type=merge -p '{"spec":{"profileName":"cpx"}}'`)
	clientfake.React(&kube.Fake, "get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-a", errors.New("no"))
	})
	err = r.set(t.Context(), "cpx")
	require.ErrorContains(t, err, `read node node-a: nodes "node-a" is forbidden`)
	require.ErrorContains(t, err, `kubectl patch gpunode node-a`)
	require.NotContains(t, r.set(t.Context(), "").Error(), "kubectl patch")
	kube.ReactionChain = kube.ReactionChain[1:]

	ours := r.Ours.(*clientfake.Client)
	clientfake.React(&ours.Fake, "list", "partitionprofiles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "partitionprofiles"}, "")
	})
	require.ErrorContains(t, r.set(t.Context(), "cpx"), "the API server does not serve PartitionProfiles: install the chart")
	clientfake.React(&ours.Fake, "get", "gpunodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	require.EqualError(t, r.set(t.Context(), ""), "read GPUNode node-a: away")
	assert.Empty(t, r.labelNow(t))
}

func TestShowProfile(t *testing.T) {
	var out bytes.Buffer
	r := newRun(&out, nodeNamed("node-a"), follows("node-a", "cpx"))
	require.NoError(t, showNodes(t.Context(), r.session, []string{"node-a"}))
	assert.Equal(t, "node-a: profile cpx, named by the node's label tranche.dev/profile=cpx\n\nGPU    MODE    REMARKS\ngpu-a  MIG on\n", out.String())
	out.Reset()
	r.output = "json"
	require.NoError(t, showNodes(t.Context(), r.session, []string{"node-a"}))
	var shown v1beta1.GPUNode
	require.NoError(t, json.Unmarshal(out.Bytes(), &shown))
	assert.Equal(t, "GPUNode", shown.Kind)
	assert.Equal(t, "cpx", shown.Status.Applied.ProfileName)
	require.ErrorContains(t, showNodes(t.Context(), r.session, []string{"node-x"}), "GPUNode node-x does not exist; ")

	// Several are a list, as kubectl prints it, also if one is missing.
	out.Reset()
	require.ErrorContains(t, showNodes(t.Context(), r.session, []string{"node-a", "node-x"}), "GPUNode node-x does not exist; ")
	var all struct {
		Kind  string
		Items []v1beta1.GPUNode
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &all))
	assert.Equal(t, "List", all.Kind)
	require.Len(t, all.Items, 1)
	assert.Equal(t, "GPUNode", all.Items[0].Kind)
	out.Reset()
	r.output = ""
	require.NoError(t, showNodes(t.Context(), r.session, []string{"node-a", "gpunode/node-a"}))
	assert.Equal(t, 2, strings.Count(out.String(), "node-a: profile cpx"))
	assert.Contains(t, out.String(), "\n\nnode-a: ")
	assert.NotContains(t, out.String(), "has not noticed")

	out.Reset()
	r = newRun(&out, nodeNamed("node-a", names.LabelProfile, "spx"), follows("node-a", "cpx"))
	require.NoError(t, showNodes(t.Context(), r.session, []string{"node-a"}))
	assert.Contains(t, strings.Join(strings.Fields(out.String()), " "), "The controller has not noticed the label tranche.dev/profile=spx of the node.")
}

func TestFlagsOfProfile(t *testing.T) {
	file := kubeconfig(t, map[string]*server{"one": newServer(t)})
	for want, args := range map[string][]string{
		"name a node: kubectl tranche node NODE...":          {"node"},
		"name a node and a profile: kubectl tranche set-":    {"set-profile"},
		"set-profile NODE PROFILE, or NODE --unset":          {"set-profile", "node-a", "--wait"},
		"--unset removes the label, so it takes no PROFILE":  {"set-profile", "node-a", "cpx", "--unset"},
		"PROFILE is empty; to remove the label, use --unset": {"set-profile", "node-a", ""},
		"accepts at most 2 arg(s)":                           {"set-profile", "a", "b", "c"},
		"unknown shorthand flag: 'o'":                        {"set-profile", "node-a", "cpx", "-o", "json"},
		`unsupported output format "xml": use json or yaml`:  {"node", "node-a", "-o", "xml"},
		"name a node: kubectl tranche switches NODE...":      {"switches"},
		`unsupported output format "wide": use json or`:      {"switches", "node-a", "-o", "wide"},
		`unsupported output format "name": use json or`:      {"profiles", "-o", "name"},
		"list PartitionProfiles: ":                           {"profiles"}, // the server forbids it
		"read GPUNode node-a: ":                              {"switches", "node/node-a"},
		"read GPUNode node-b: ":                              {"node", "gpunode/node-b"},
		"read node node-b: ":                                 {"set-profile", "node-b", "cpx"},
		"-o is for what --check finds: add --check":          {"uninstall", "-o", "json"},
	} {
		_, err := run(t, append([]string{"--kubeconfig", file, "--context", "one"}, args...)...)
		assert.ErrorContains(t, err, want, args)
	}
}

// serve has the server answer to one more path.
func (s *server) serve(path string, object any) {
	next := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/tranche.dev/v1beta1/"+path {
			next.ServeHTTP(w, r)
			return
		}
		send(w, object)
	})
}

// TestAgainstAServer: what the commands print of a cluster with GPUNodes.
func TestAgainstAServer(t *testing.T) {
	s := newServer(t, slice("a", "node-a"))
	failed := gpunodes.WithProfile("node-a", "spx").GPUs(gpunodes.XCP("SPX", "NPS1"), "gpu-0000-0f-00-0").Fails("cpx", "InUse", "process 4711 holds the GPU", false).GPUNode
	failed.TypeMeta = metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "GPUNode"}
	s.serve("gpunodes", v1beta1.GPUNodeList{TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "GPUNodeList"}, Items: []v1beta1.GPUNode{failed}})
	s.serve("gpunodes/node-a", failed)
	s.serve("partitionprofiles", v1beta1.PartitionProfileList{TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "PartitionProfileList"},
		Items: []v1beta1.PartitionProfile{*profileNamed("cpx")}})
	base := []string{"--kubeconfig", kubeconfig(t, map[string]*server{"one": s}), "--context", "one"}
	for _, test := range []struct {
		args string
		want []string
	}{
		{"", []string{"profile spx → cpx", "(InUse)", "process 4711"}},
		{"-o json", []string{`"profileName": "spx"`, `"reason": "InUse"`}},
		{"profiles", []string{"PROFILE  FITS    WANTED BY  FOLLOWED BY", "cpx      1 node  1 node     -", "spx      -       -          1 node"}},
		{"profiles -o json", []string{`"kind": "ProfileList"`, `"items": [`, `"desiredNodeNames": [`, `"node-a"`, `"missing": true`}},
		{"profiles -o yaml", []string{"apiVersion: cli.tranche.dev/v1beta1\nitems:\n- ", "kind: ProfileList\n"}},
		{"switches node-a", []string{"spx   cpx  NotApplied", "10m0s"}},
		{"node node-a -o yaml", []string{"apiVersion: tranche.dev/v1beta1\nkind: GPUNode\n", "name: node-a\n"}},
		{"switches node-a -o json", []string{`"kind": "GPUNode"`, `"duration": "10m0s"`, `"state": "Failed"`}},
		{"node node-a", []string{"node-a: profile spx → cpx, named by the node's label", "SPX NPS1"}},
	} {
		out, err := run(t, append(base, strings.Fields(test.args)...)...)
		require.NoError(t, err, test.args)
		for _, want := range test.want {
			assert.Contains(t, out, want, test.args)
		}
	}
}
