package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dev/tranche/pkg/client"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/web"
	"github.com/tranche-dev/tranche/pkg/web/live"
	"github.com/tranche-dev/tranche/pkg/web/signin"
	"github.com/tranche-dev/tranche/test/simulator/load"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// busyPage is the page of a GPU with a curve of the memory that is used. How much a GPU in MIG mode
// computes is known of its partitions only.
var busyPage = regexp.MustCompile(`aria-label="Memory used: [1-9][\d.]* GiB now; .*<path class="curve" d="M[\d.]+ [\d.]+L`)

// inBackground starts a program and returns the first part of its output that matches. The program
// ends with the test.
func (s *suite) inBackground(match string, program string, args ...string) string {
	s.t.Helper()
	command := s.command(s.ctx, program, args...) // ending kubectl ends its plugin, by which it replaces itself
	out, err := command.StdoutPipe()
	require.NoError(s.t, err)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	require.NoError(s.t, command.Start())
	s.t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := regexp.MustCompile(match).FindString(lines.Text()); found != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return found
		}
	}
	_ = command.Process.Kill()
	_ = command.Wait()
	require.Fail(s.t, "the program has ended", "%s: %s", strings.Join(args, " "), complaints.String())
	return ""
}

// The page of kubectl tranche ui shows what the user may read, as it changes, to who has its
// address.
func TestWebPageOnThisMachine(t *testing.T) {
	s := startOnCluster(t)
	pci := s.machine(nodeA).GPUs[1].PCI
	s.setFaults(nvdriver.Faults{Load: []load.Load{{GPU: pci, Compute: 60, Memory: 50}}})
	s.gpuPodOn("holder", class3g40gb, pci)
	s.waitRunning("holder")
	address := s.inBackground(`http://127\.0\.0\.1:\d+/\w+/`, "kubectl", "tranche", "ui")
	get := func(url string) (int, string) {
		r, err := http.Get(url)
		require.NoError(t, err)
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(body)
	}
	s.eventually("the page shows the nodes", func() (bool, string) {
		_, page := get(address)
		return strings.Contains(page, nodeA) && strings.Contains(page, nodeB) && strings.Contains(page, nodeC), page
	})
	_, page := get(address + "nodes/" + nodeA)
	assert.Contains(t, page, s.namespace+"/holder")
	s.eventually("the page of the GPU shows how busy it is", func() (bool, string) {
		_, page := get(address + "nodes/" + nodeA + "/" + gpu.NameOf(pci))
		return busyPage.MatchString(page) && strings.Contains(page, "compute 60 %, "), page
	})
	status, page := get(address[:len(address)-1] + "x/")
	assert.Equal(t, http.StatusForbidden, status, "with another token")
	assert.NotContains(t, page, nodeA)

	s.gpuPod("second", class1g10gb)
	s.waitRunning("second")
	s.eventually("the page follows", func() (bool, string) {
		_, page := get(address + "nodes/" + nodeA)
		return strings.Contains(page, s.namespace+"/second"), page
	})
	s.gpuPod("too-large", "gpu-mig-7g-141gb.tranche.dev")
	s.eventually("the page says why a pod waits", func() (bool, string) {
		status, page := get(address + "pending/" + s.namespace + "/too-large")
		return status == http.StatusOK && strings.Contains(page, "no device of class gpu-mig-7g-141gb.tranche.dev"), page
	})
	s.inBrowser(address)
}

// inBrowser opens the page in Chromium, where scripts run, and goes through it.
func (s *suite) inBrowser(address string) {
	s.t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		s.t.Log("LEFT OUT: the page in a browser. It needs chromium.")
		return
	}
	c := exec.CommandContext(s.ctx, filepath.Join(repository, "build", "browser.test"), "-test.run", "^TestPageOfACluster$", "-test.v")
	c.Env = append(os.Environ(), "TRANCHE_PAGE="+address)
	out, err := c.CombinedOutput()
	require.NoError(s.t, err, string(out))
	assert.Contains(s.t, string(out), "--- PASS: TestPageOfACluster")
}

// The page of the cluster shows users what they may list.
func TestWebPageOfTheCluster(t *testing.T) {
	s := startOnCluster(t)
	other := *s
	namespace, err := s.client.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "secret-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	other.namespace = namespace.Name
	t.Cleanup(func() {
		other.deletePods()
		assert.NoError(t, s.client.CoreV1().Namespaces().Delete(s.ctx, other.namespace, metav1.DeleteOptions{}))
	})
	pci := s.machine(nodeA).GPUs[1].PCI
	s.setFaults(nvdriver.Faults{Load: []load.Load{{GPU: pci, Compute: 60, Memory: 50}}})
	other.gpuPodOn("secret-holder", class1g10gb, pci)
	s.gpuPodOn("mine", class3g40gb, pci)
	other.waitRunning("secret-holder")
	s.waitRunning("mine")
	for _, user := range []string{"tenant", "nobody"} {
		s.kubectl("-n", s.namespace, "create", "serviceaccount", user)
	}
	tenant := s.namespace + ":tenant"
	s.kubectl("create", "clusterrolebinding", s.namespace, "--clusterrole=tranche-user", "--serviceaccount="+tenant)
	t.Cleanup(func() { s.kubectl("delete", "clusterrolebinding", s.namespace) })
	s.kubectl("-n", s.namespace, "create", "rolebinding", "tenant", "--clusterrole=view", "--serviceaccount="+tenant)

	port := s.inBackground(`127\.0\.0\.1:\d+`, "kubectl", "-n", pluginNamespace, "port-forward", "service/tranche-web", ":443")
	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // nobody has signed it
	get := func(user, path string) (int, string) {
		r, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "https://"+port+path, nil)
		require.NoError(t, err)
		if user != "" {
			r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(s.kubectl("-n", s.namespace, "create", "token", user)))
		}
		answer, err := browser.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(body)
	}
	status, page := get("", "/")
	assert.Equal(t, http.StatusUnauthorized, status)
	assert.NotContains(t, page, nodeA)
	status, page = get("nobody", "/")
	assert.Equal(t, http.StatusForbidden, status)
	assert.NotContains(t, page, nodeA)
	s.eventually("the tenant sees the own pod", func() (bool, string) {
		_, page = get("tenant", "/nodes/"+nodeA)
		return strings.Contains(page, s.namespace+"/mine"), page
	})
	assert.Contains(t, page, "another namespace")
	assert.NotContains(t, page, "secret-")
	s.eventually("the page of the GPU shows how busy it is, and what the own pod uses", func() (bool, string) {
		_, page = get("tenant", "/nodes/"+nodeA+"/"+gpu.NameOf(pci))
		return busyPage.MatchString(page) && strings.Contains(page, "compute 60 %, "), page
	})
	assert.Equal(t, 1, strings.Count(page, "compute 60 %, "), "not what others use")
	assert.NotContains(t, page, "secret-")
}

// The rights that the chart gives the page of the cluster are enough for it, and for asking what its
// users may see.
func TestPageHasTheRightsThatItNeeds(t *testing.T) {
	s := start(t)
	config := s.configAs("tranche-web", nil)
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ours, err := client.New(config)
	require.NoError(t, err)
	store, guard := live.New(time.Now), signin.New(kube)
	page, err := web.New(web.Options{Source: store, Viewer: guard.Viewer, User: guard.User, Why: store.Explain, Now: time.Now})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(s.ctx)
	var following sync.WaitGroup
	following.Go(func() { store.Follow(ctx, read.Clients{Kubernetes: kube, Ours: ours}, "") })
	t.Cleanup(func() { cancel(); following.Wait() })
	s.eventually("the page knows the node", func() (bool, string) { return store.Snapshot().Find(nodeA) != nil, "" })
	assert.Empty(t, store.Snapshot().Unread, "it may read everything")

	get := func(user string) (status int, text string) {
		r := httptest.NewRequest(http.MethodGet, "/nodes/"+nodeA, nil)
		r.Header.Set("Authorization", "Bearer "+user)
		w := httptest.NewRecorder()
		guard.Handler(page).ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	tokens := map[string]string{}
	for _, user := range []string{"tenant", "nobody"} {
		s.kubectl("-n", s.namespace, "create", "serviceaccount", user)
		tokens[user] = strings.TrimSpace(s.kubectl("-n", s.namespace, "create", "token", user))
	}
	s.kubectl("create", "clusterrolebinding", s.namespace, "--clusterrole=tranche-user", "--serviceaccount="+s.namespace+":tenant")
	t.Cleanup(func() { s.kubectl("delete", "clusterrolebinding", s.namespace) })
	status, text := get(tokens["tenant"])
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, "Signed in as system:serviceaccount:"+s.namespace+":tenant")
	assert.Contains(t, text, "H100")
	status, text = get(tokens["nobody"])
	assert.Equal(t, http.StatusForbidden, status)
	assert.NotContains(t, text, "H100")
	status, _ = get(strings.ToUpper(tokens["nobody"]))
	assert.Equal(t, http.StatusUnauthorized, status)
}
