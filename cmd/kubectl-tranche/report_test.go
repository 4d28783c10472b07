package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/kubefake"
)

// reportedCluster is a cluster with an installation, and objects of others.
func reportedCluster() *fake.Clientset {
	system := func(name, component, node string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "tranche-system", Name: name, Labels: map[string]string{
			"app.kubernetes.io/part-of": "tranche", componentLabel: component, versionLabel: "0.1.0",
		}}
	}
	pod := func(name, component, node string, restarts int32) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: system(name, component, node),
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2"}}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", Ready: true, RestartCount: restarts,
			}}},
		}
	}
	held := claimIn("team-a", "held")
	held.Annotations = map[string]string{"example.com/note": "hunter2"}
	held.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Driver: names.DriverName, Pool: "node-a", Device: "gpu-0000-0f-00-0"}},
	}}
	secret := &corev1.Secret{ObjectMeta: system("values", "", ""), StringData: map[string]string{"password": "hunter2"}}
	return kubefake.New(
		&resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.tranche.dev", Annotations: map[string]string{names.AnnotationSystemNamespace: "tranche-system"}}},
		slice("a", "node-a"), slice("b", "node-b"), held, claimIn("team-b", "other"), secret,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"hunter2"}}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "without-gpus"}},
		pod("tranche-controller-x", "controller", "node-c", 0), pod("tranche-kubelet-plugin-a", "kubelet-plugin", "node-a", 0),
		pod("tranche-kubelet-plugin-b", "kubelet-plugin", "node-b", 1), podIn("team-a", "train"),
		&appsv1.DaemonSet{ObjectMeta: system("tranche-kubelet-plugin", "kubelet-plugin", "")},
		&corev1.ConfigMap{ObjectMeta: system("tranche-profiles", "", "")},
	)
}

// contents are the files of a report.
func contents(t *testing.T, archive io.Reader) (names []string, files map[string]string) {
	uncompressed, err := gzip.NewReader(archive)
	require.NoError(t, err)
	files = map[string]string{}
	for all := tar.NewReader(uncompressed); ; {
		head, err := all.Next()
		if errors.Is(err, io.EOF) {
			return names, files
		}
		require.NoError(t, err)
		data, err := io.ReadAll(all)
		require.NoError(t, err)
		name := strings.TrimPrefix(head.Name, "tranche-report/")
		names, files[name] = append(names, name), string(data)
	}
}

func TestReport(t *testing.T) {
	var out bytes.Buffer
	s := newSession(&out, picture.Screen{Width: 80}, connection{read.Clients{Kubernetes: reportedCluster(), Ours: clientfake.New(follows("node-a", "cpx"), follows("node-b", "cpx"))}})
	require.NoError(t, s.report(t.Context(), reportFlags{file: "-"}))
	all, files := contents(t, &out)
	assert.Equal(t, strings.Fields(`versions.yaml gpunodes.yaml partitionprofiles.yaml partitionplans.yaml nodes.yaml deviceclasses.yaml devicetaintrules.yaml
		resourceslices.yaml resourceclaims.yaml events.yaml daemonsets.yaml deployments.yaml configmaps.yaml pods.yaml
		logs/tranche-controller-x.main.log logs/tranche-kubelet-plugin-b.main.log logs/tranche-kubelet-plugin-b.main.previous.log
		logs/tranche-kubelet-plugin-a.main.log unread.txt`), all)
	assert.Empty(t, files["unread.txt"])
	assert.Equal(t, "fake logs", files["logs/tranche-controller-x.main.log"])
	assert.Contains(t, files["resourceclaims.yaml"], "name: held")
	assert.Contains(t, files["resourceclaims.yaml"], "kind: ResourceClaim")
	for name, text := range files {
		assert.NotContains(t, text, "hunter2", name)
		assert.NotContains(t, text, "name: other", name)
		assert.NotContains(t, text, "without-gpus", name)
		assert.NotContains(t, text, "name: train", name)
	}

	out.Reset()
	require.NoError(t, s.report(t.Context(), reportFlags{file: "-", nodes: []string{"node-b"}}))
	all, files = contents(t, &out)
	assert.NotContains(t, all, "logs/tranche-kubelet-plugin-a.main.log")
	assert.Contains(t, all, "logs/tranche-controller-x.main.log")
	for _, file := range []string{"gpunodes.yaml", "nodes.yaml", "resourceslices.yaml"} {
		assert.NotContains(t, files[file], "node-a", file)
		assert.Contains(t, files[file], "node-b", file)
	}
}

// What may not be read is listed, and the rest is there.
func TestReportWithoutRights(t *testing.T) {
	kubernetes := reportedCluster()
	forbid(kubernetes, "nodes", "")
	forbid(kubernetes, "configmaps", "tranche-system")
	var out bytes.Buffer
	s := newSession(&out, picture.Screen{Width: 80}, connection{read.Clients{Kubernetes: kubernetes, Ours: clientfake.New()}})
	require.NoError(t, s.report(t.Context(), reportFlags{file: "-"}))
	all, files := contents(t, &out)
	assert.NotContains(t, all, "nodes.yaml")
	assert.Contains(t, all, "resourceslices.yaml")
	assert.Equal(t, "nodes.yaml: nodes is forbidden: no\nconfigmaps.yaml: configmaps is forbidden: no\n", files["unread.txt"])
}

// A report has a bound: objects and logs are left out beyond it, and named.
func TestReportIsBounded(t *testing.T) {
	var out bytes.Buffer
	s := newSession(&out, picture.Screen{Width: 80}, connection{read.Clients{Kubernetes: reportedCluster(), Ours: clientfake.New()}})
	to := tar.NewWriter(&out)
	r := &reportRun{session: s, system: "tranche-system", to: to, left: 1000}
	require.NoError(t, r.objects(t.Context()))
	require.NoError(t, r.logs(t.Context()))
	assert.GreaterOrEqual(t, r.left, 0)
	assert.Contains(t, r.unread, "resourceslices.yaml: 2 of 2 objects are left out: choose nodes by --node")
	r.left = 0
	require.NoError(t, r.logs(t.Context()))
	assert.Contains(t, r.unread, "logs/tranche-controller-x.main.log: left out, since the report is as large as it can be")
}

func TestReportFile(t *testing.T) {
	var out bytes.Buffer
	s := newSession(&out, picture.Screen{Width: 80}, connection{read.Clients{Kubernetes: reportedCluster(), Ours: clientfake.New()}})
	t.Chdir(t.TempDir())
	require.NoError(t, s.report(t.Context(), reportFlags{}))
	name := "tranche-report-" + s.now().UTC().Format("20060102-150405") + ".tar.gz"
	assert.Equal(t, "Wrote "+name+". It names pods, claims and nodes: read it before you pass it on.\n", out.String())
	file, err := os.Open(name)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	_, files := contents(t, file)
	assert.Contains(t, files, "unread.txt")
	require.ErrorIs(t, s.report(t.Context(), reportFlags{}), os.ErrExist, "nothing is overwritten")

	_, err = run(t, "report", "-f", filepath.Join(t.TempDir(), "report"), "--kubeconfig", kubeconfig(t, nil))
	require.ErrorContains(t, err, "cannot be reached")
	assert.NoFileExists(t, "report")
}
