package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/usage"
)

// usageServer is an API server with two nodes, whose plugins answer, and a third whose plugin
// does not.
func usageServer(t *testing.T) *server {
	metrics := map[string]string{
		"plugin-a": `tranche_memory_used_bytes{node="node-a",gpu="gpu-a",uuid="GPU-a",namespace="team-a",pod="train-0"} 1073741824
tranche_compute_active_ratio{node="node-a",gpu="gpu-a",uuid="GPU-a",namespace="team-a",pod="train-0"} 0.25
`,
		"plugin-b": `tranche_memory_used_bytes{node="node-b",gpu="gpu-b",uuid="MIG-1",parent_uuid="GPU-b",gpu_instance_id="7",profile="1g.10gb",namespace="team-b",pod="infer-0"} 2147483648
tranche_memory_used_bytes{node="node-b",gpu="gpu-b",uuid="GPU-b"} 3221225472
`,
	}
	return serverThat(t, func(s *server, w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/proxy/metrics"):
			for name, text := range metrics {
				if strings.Contains(r.URL.Path, name) {
					_, _ = w.Write([]byte(text))
					return
				}
			}
			http.Error(w, "no", http.StatusForbidden)
		case strings.HasSuffix(r.URL.Path, "/pods"):
			list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
			for _, node := range []string{"a", "b", "c"} {
				list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tranche-system", Name: "plugin-" + node}, Spec: corev1.PodSpec{NodeName: "node-" + node}})
			}
			send(w, list)
		case strings.HasSuffix(r.URL.Path, "/nodes"):
			list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
			switch r.URL.Query().Get("labelSelector") {
			case "pool=cpu":
				list.Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node-cpu"}}}
			case "pool=x":
				list.Items = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}}}
			}
			send(w, list)
		case strings.HasSuffix(r.URL.Path, "/deviceclasses") && !s.hidesClasses:
			list := resourceapi.DeviceClassList{TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "DeviceClassList"}}
			list.Items = []resourceapi.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Annotations: map[string]string{names.AnnotationSystemNamespace: "tranche-system"}}}}
			send(w, list)
		default:
			http.Error(w, "no", http.StatusForbidden)
		}
	})
}

func TestTop(t *testing.T) {
	s := usageServer(t)
	base := []string{"--kubeconfig", kubeconfig(t, map[string]*server{"one": s}), "--context", "one", "top"}
	for args, wants := range map[string][]string{
		"":                              {"node-a: 1 GPU, memory 1 GiB, compute 25%, engine -, power -\n", "  1g.10gb #7  2 GiB   -        -       -      team-b/infer-0\n", "node-c: You are not allowed to get pods/proxy"},
		"nodes":                         {"node-a  1     1 GiB   25%      -       -\n"},
		"nodes --sort-by memory":        {"POWER  REMARKS\nnode-b "},
		"gpus --node node-b":            {"node-b: 1 GPU, memory 3 GiB"},
		"gpus -l pool=x -o json":        {`"profile": "1g.10gb"`},
		"pods":                          {"team-a     train-0  1 GiB   25%      -       -      gpu-a\n", "Note: The pods of node-c are not known (you are not allowed"},
		"pods -o yaml --sort-by memory": {"items:\n- devices:\n  - gpuName: gpu-b\n    profile: 1g.10gb\n"},
	} {
		out, err := run(t, append(base, strings.Fields(args)...)...)
		require.NoError(t, err, args)
		for _, want := range wants {
			assert.Contains(t, out, want, args)
		}
	}
	out, err := run(t, append(base, "pods", "-n", "team-b")...)
	require.NoError(t, err)
	assert.NotContains(t, out, "train-0")
	s.asked = nil
	_, err = run(t, append(base, "gpus", "--node", "node-b")...)
	require.NoError(t, err)
	assert.NotContains(t, strings.Join(s.asked, " "), "plugin-a", "no other plugin is read")

	for want, args := range map[string]string{
		`unknown argument "cards": use nodes, gpus or pods`:                                       "cards",
		`--sort-by "age": use name, memory, compute or power`:                                     "pods --sort-by age",
		`unsupported output format "wide": use json or yaml`:                                      "pods -o wide",
		"none of the nodes has the labels pool=y":                                                 "-l pool=y",
		"--namespace team-a selects pods: use kubectl tranche top pods -n team-a":                 "gpus -n team-a",
		"nothing is known of GPUs on a node nope; these nodes have GPUs: kubectl tranche -o name": "--node node-a,nope",
	} {
		_, err := run(t, append(base, strings.Fields(args)...)...)
		require.EqualError(t, err, want)
	}
}

// A node's GPUs are sorted, too.
func TestTopSortsGPUs(t *testing.T) {
	more := func(bytes float64) usage.Values { return usage.Values{MemoryUsed: &bytes} }
	nodes := []usage.Node{{Name: "node-a", Values: more(3), GPUs: []usage.GPU{{Name: "gpu-a", Values: more(1)}, {Name: "gpu-b", Values: more(2)}}}}
	var out strings.Builder
	r := topRun{session: newSession(&out, picture.Screen{Width: 80}, connection{}), flags: topFlags{sortBy: "memory"}, what: "gpus"}
	require.NoError(t, r.show(r.picture(nodes)))
	assert.Less(t, strings.Index(out.String(), "gpu-b"), strings.Index(out.String(), "gpu-a"))
}

// Nodes without a plugin, of those with a label, are none: as JSON, too.
func TestTopWithoutNodes(t *testing.T) {
	s := usageServer(t)
	base := []string{"--kubeconfig", kubeconfig(t, map[string]*server{"one": s}), "--context", "one", "top"}
	out, err := run(t, append(base, "nodes", "-l", "pool=cpu", "-o", "json")...)
	require.NoError(t, err)
	assert.JSONEq(t, `{"apiVersion": "cli.tranche.dev/v1beta1", "kind": "NodeUsageList", "items": []}`, out)
}

// Pods of other namespaces could pretend to be plugins.
func TestTopNeedsTheNamespace(t *testing.T) {
	s := usageServer(t)
	s.hidesClasses = true
	base := []string{"--kubeconfig", kubeconfig(t, map[string]*server{"one": s}), "--context", "one", "top"}
	_, err := run(t, base...)
	require.ErrorContains(t, err, "the namespace of Tranche is not known (")
	require.ErrorContains(t, err, "name it with --system-namespace")
	_, err = run(t, append(base, "--system-namespace", "gpus")...)
	require.NoError(t, err)
	assert.Contains(t, strings.Join(s.asked, " "), "/api/v1/namespaces/gpus/pods?")
}
