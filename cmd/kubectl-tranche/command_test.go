package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/pkg/text"
	"github.com/tranche-dev/tranche/test/gpunodes"
	"github.com/tranche-dev/tranche/test/kubefake"
)

// server is an API server that has slices and nothing else, and remembers what
// it was asked.
type server struct {
	*httptest.Server
	mu    sync.Mutex // protects asked: commands may ask several things at a time
	asked []string
	pods  map[string]*corev1.Pod // none: pods are out of bounds
	// hidesClasses: DeviceClasses are out of bounds.
	hidesClasses bool
}

func (s *server) remember(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, path)
}

// serverThat is an API server that answers in a way of its own.
func serverThat(t *testing.T, answers func(s *server, w http.ResponseWriter, r *http.Request)) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.remember(r.URL.Path + "?" + r.URL.RawQuery)
		answers(s, w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// send answers with an object.
func send(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

func newServer(t *testing.T, slices ...*resourceapi.ResourceSlice) *server {
	return serverThat(t, func(s *server, w http.ResponseWriter, r *http.Request) {
		list := resourceapi.ResourceSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSliceList"}}
		switch {
		case strings.HasSuffix(r.URL.Path, "/resourceslices"):
			for _, x := range slices {
				list.Items = append(list.Items, *x)
			}
		case strings.HasSuffix(r.URL.Path, "/resourceclaims"):
			list.Kind = "ResourceClaimList"
		case s.pods != nil && strings.Contains(r.URL.Path, "/pods/"):
			answer(w, s.pods[path.Base(r.URL.Path)])
			return
		default:
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		send(w, list)
	})
}

// answer sends a pod, or says that there is none.
func answer(w http.ResponseWriter, pod *corev1.Pod) {
	if pod == nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(apierrors.NewNotFound(corev1.Resource("pods"), "").Status())
		return
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	send(w, pod)
}

// kubeconfig writes a file with a context for each server. The current context
// leads nowhere.
func kubeconfig(t *testing.T, servers map[string]*server) string {
	config := clientcmdapi.NewConfig()
	config.CurrentContext = "nowhere"
	config.Clusters["nowhere"] = &clientcmdapi.Cluster{Server: "http://127.0.0.1:1"}
	config.Contexts["nowhere"] = &clientcmdapi.Context{Cluster: "nowhere"}
	for name, s := range servers {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: s.URL}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	}
	file := filepath.Join(t.TempDir(), "config")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return file
}

// newSession writes to out as to a screen, in the namespace team-a.
func newSession(out io.Writer, screen picture.Screen, c connection) *session {
	return &session{
		connection: c, out: out, screen: func() picture.Screen { return screen }, namespace: "team-a", now: func() time.Time { return gpunodes.Now },
	}
}

func run(t *testing.T, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := newCommand(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// An unknown command names the one that was probably meant.
func TestUnknownCommands(t *testing.T) {
	for want, args := range map[string][]string{
		`unknown command "whyy" for "kubectl tranche"; did you mean why?`:               {"whyy"},
		`unknown command "topp" for "kubectl tranche"; did you mean top?`:               {"topp", "gpus"},
		`unknown command "statuss" for "kubectl tranche rollout"; did you mean status?`: {"rollout", "statuss", "canary"},
		`unknown command "xyz" for "kubectl tranche"`:                                   {"xyz"},
	} {
		_, err := run(t, args...)
		assert.EqualError(t, err, want)
	}
}

func TestKubeconfigAndContext(t *testing.T) {
	one, two := newServer(t, slice("a", "node-a")), newServer(t, slice("b", "node-b"))
	file := kubeconfig(t, map[string]*server{"one": one, "two": two})

	out, err := run(t, "--kubeconfig", file, "--context", "two")
	require.NoError(t, err)
	assert.Contains(t, out, "node-b")
	assert.NotContains(t, out, "node-a")
	assert.Empty(t, one.asked)
	assert.Contains(t, two.asked[0], "fieldSelector=spec.driver%3Dgpu.tranche.dev&")

	_, err = run(t, "--kubeconfig", file)
	require.ErrorContains(t, err, "did you specify the right host or port?", "the current context is used without --context")
}

func TestNodeAsksForThatNodeOnly(t *testing.T) {
	s := newServer(t, slice("a", "node-a"), slice("b", "node-b")) // a server that does not know the selector
	file := kubeconfig(t, map[string]*server{"one": s})
	out, err := run(t, "--kubeconfig", file, "--context", "one", "--node", "node-b")
	require.NoError(t, err)
	assert.Contains(t, s.asked[0], "spec.nodeName%3Dnode-b")
	assert.NotContains(t, out, "node-a")

	out, err = run(t, "--kubeconfig", file, "--context", "one", "--node", "node-x")
	require.NoError(t, err)
	assert.Contains(t, out, "No GPUs are published by node-x.")

	out, err = run(t, "--kubeconfig", file, "--context", "one", "--node=")
	require.NoError(t, err)
	assert.Contains(t, out, "node-a", "no name is no restriction")
	assert.Contains(t, out, "node-b")
}

func TestOutput(t *testing.T) {
	file := kubeconfig(t, map[string]*server{"one": newServer(t, slice("a", "node-a"))})
	base := []string{"--kubeconfig", file, "--context", "one"}

	out, err := run(t, append(base, "-o", "json")...)
	require.NoError(t, err)
	assert.True(t, json.Valid([]byte(out)), out)
	assert.Contains(t, out, `"name": "gpu-0000-0f-00-0"`)

	_, err = run(t, append(base, "-o", "xml")...)
	require.EqualError(t, err, `unsupported output format "xml": use wide or json or yaml or name`)

	out, err = run(t, append(base, "--ascii")...)
	require.NoError(t, err)
	assert.Contains(t, out, "|......")
}

// More than a handful of nodes are summed up, unless the user says otherwise.
func TestSummary(t *testing.T) {
	var six []*resourceapi.ResourceSlice
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		six = append(six, slice(name, "node-"+name))
	}
	many := []string{"--kubeconfig", kubeconfig(t, map[string]*server{"one": newServer(t, six...)}), "--context", "one"}
	few := []string{"--kubeconfig", kubeconfig(t, map[string]*server{"one": newServer(t, six[:5]...)}), "--context", "one"}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"many":           {many, "6 nodes, 6 GPUs: 6 ready\n"},
		"many, drawn":    {append(many, "--summary=false"), "node-f: 1 × GPU of unknown model"},
		"many, some":     {append(many, "--node", "node-f"), "node-f: 1 × GPU of unknown model"},
		"a line each":    {append(many, "-o", "wide"), "node-f  Ready  -        0 B of 0 B   1 × GPU of unknown model\n"},
		"few":            {few, "node-e: 1 × GPU of unknown model"},
		"few, summed up": {append(few, "--summary"), "5 nodes, 5 GPUs: 5 ready\n"},
		"names":          {append(few, "-o", "name"), "node/node-a\nnode/node-b\nnode/node-c\nnode/node-d\nnode/node-e\n"},
		"as JSON":        {append(many, "--summary", "-o", "json"), `"kind": "ClusterSummary"`},
		"all as JSON":    {append(many, "-o", "json"), `"name": "node-f"`},
		"as YAML":        {append(many, "--summary", "-o", "yaml"), "nodeCount: 6\n"},
		"all as YAML":    {append(many, "-o", "yaml"), "  name: node-f\n"},
	} {
		out, err := run(t, c.args...)
		require.NoError(t, err, name)
		assert.Contains(t, out, c.want, name)
	}
	_, err := run(t, append(many, "--watch", "-o", "json")...)
	require.EqualError(t, err, "--watch draws, or writes a line for each change: leave out -o json")
}

func TestEmptyCluster(t *testing.T) {
	file := kubeconfig(t, map[string]*server{"one": newServer(t)})
	out, err := run(t, "--kubeconfig", file, "--context", "one")
	require.NoError(t, err)
	assert.Contains(t, out, "No node publishes GPUs yet.")
	assert.Contains(t, out, "kubectl get pods -o wide -A -l app.kubernetes.io/component=kubelet-plugin")
}

func TestVersion(t *testing.T) {
	client := "kubectl-tranche: dev " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	out, err := run(t, "version", "--client")
	require.NoError(t, err)
	assert.Equal(t, client, out)

	// Without a cluster, the version of the program is told all the same.
	out, err = run(t, "version", "--kubeconfig", kubeconfig(t, nil))
	require.EqualError(t, err, "the API server 127.0.0.1:1 cannot be reached (connect: connection refused): did you specify the right host or port?")
	assert.Equal(t, client, out)
	out, err = run(t, "version", "--client", "-o", "yaml")
	require.NoError(t, err)
	assert.Equal(t, "apiVersion: cli.tranche.dev/v1beta1\nclient:\n  platform: "+runtime.GOOS+"/"+runtime.GOARCH+"\n  version: dev\nkind: Version\n", out)
}

func TestServerVersions(t *testing.T) {
	pod := func(name, component, version string, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tranche-system", Name: name}, Status: corev1.PodStatus{Phase: phase}}
		p.Labels = map[string]string{"app.kubernetes.io/part-of": "tranche", componentLabel: component, versionLabel: version}
		return p
	}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Annotations: map[string]string{names.AnnotationSystemNamespace: "tranche-system"}}}
	foreign := pod("g", "kubelet-plugin", "9.0.0", corev1.PodRunning)
	foreign.Namespace = "team-a"
	kubernetes := kubefake.New(class, foreign, pod("a", "kubelet-plugin", "0.1.0", corev1.PodRunning), pod("b", "kubelet-plugin", "0.2.0", corev1.PodRunning),
		pod("c", "kubelet-plugin", "0.1.0", corev1.PodRunning), pod("d", "controller", "0.2.0", corev1.PodRunning), pod("test", "", "0.2.0", corev1.PodRunning),
		pod("e", "controller", "0.3.0", corev1.PodPending))
	var missing text.Unread
	v := versions{Client: clientVersion{"0.2.0", "linux/amd64"}}
	require.NoError(t, v.read(t.Context(), connection{read.Clients{Kubernetes: kubernetes}}, "", &missing))
	v.Kubernetes = "v1.37.1"
	var out bytes.Buffer
	in := newSession(&out, picture.Screen{Width: 80}, connection{})
	require.NoError(t, in.show(v, v.draw))
	assert.Equal(t, "kubectl-tranche: 0.2.0 linux/amd64\nKubernetes: v1.37.1\n"+
		"tranche-controller: 0.2.0 (1 pod)\ntranche-kubelet-plugin: 0.1.0 (2 pods)\ntranche-kubelet-plugin: 0.2.0 (1 pod)\n", out.String())
	out.Reset()
	in.output = "json"
	require.NoError(t, in.show(v, v.draw))
	assert.Contains(t, out.String(), `"name": "controller"`)

	forbid(kubernetes, "pods", "tranche-system")
	v = versions{}
	require.ErrorContains(t, v.read(t.Context(), connection{read.Clients{Kubernetes: kubernetes}}, "", &missing), "you are not allowed to list the pods of Tranche: ")
	assert.Equal(t, text.Unread{Verb: "list", Resource: "pods", Namespace: "tranche-system"}, missing)
	none := connection{read.Clients{Kubernetes: kubefake.New(foreign)}}
	require.EqualError(t, v.read(t.Context(), none, "gpus", &missing), "no pods with the label app.kubernetes.io/part-of=tranche run in the namespace gpus")
	require.EqualError(t, v.read(t.Context(), none, "", &missing), "the namespace of Tranche is not known (no DeviceClass names it): name it with --system-namespace")
}

// An API server that does not answer is not waited for when the user ends the program.
func TestVersionEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serverThat(t, func(_ *server, _ http.ResponseWriter, r *http.Request) {
		cancel()
		select {
		case <-r.Context().Done():
		case <-t.Context().Done():
		}
	})
	var out bytes.Buffer
	cmd := newCommand(&out)
	cmd.SetArgs([]string{"version", "--kubeconfig", kubeconfig(t, map[string]*server{"one": s}), "--context", "one"})
	require.ErrorContains(t, cmd.ExecuteContext(ctx), "ask the API server for its version: ")
}
