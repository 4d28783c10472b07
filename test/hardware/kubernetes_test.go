package hardware

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tranche-dev/tranche/api/names"
)

const (
	// nodeName is the node of the Kubernetes that is started, clusterPatience how long each of its
	// steps may take.
	nodeName        = "gpu-node"
	clusterPatience = 10 * time.Minute
	// settingsOfMPS is a profile whose GPUs are shared through one MPS daemon for all pods.
	settingsOfMPS = `partitionProfiles={"side-by-side":{"rules":[{"gpus":{"vendor":"nvidia"},"sharing":{"strategy":"MPS","replicas":4,"maxClients":16}}]}}`
)

// kubernetesNode is a Kubernetes of one node on this machine.
type kubernetesNode struct {
	t *testing.T
	// kit has the files of make hardware-kit, dir those of the cluster, programs helm and kubectl.
	kit, dir, programs string
	// image is the product's.
	image  string
	client kubernetes.Interface
}

// startKubernetes starts one, which ends with the test.
func startKubernetes(t *testing.T, kit string) *kubernetesNode {
	t.Helper()
	dir, err := os.MkdirTemp("", "hardware-test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	k := &kubernetesNode{t: t, kit: kit, dir: dir}
	k.cluster("unpack", filepath.Join(kit, "cluster-parts.tar.xz"))
	k.programs = strings.TrimSpace(k.cluster("path"))
	t.Cleanup(func() { k.cluster("down", "--dir", k.folder()) })
	k.cluster("up", "--dir", k.folder(), "--nodes", nodeName)
	config, err := clientcmd.BuildConfigFromFlags("", k.kubeconfig())
	require.NoError(t, err)
	k.client, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = k.client.CoreV1().Namespaces().Create(k.ctx(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			k.tellState()
		}
	})
	return k
}

// within is the same for a part of the test.
func (k *kubernetesNode) within(t *testing.T) *kubernetesNode {
	inner := *k
	inner.t = t
	return &inner
}

func (k *kubernetesNode) folder() string     { return filepath.Join(k.dir, "cluster") }
func (k *kubernetesNode) kubeconfig() string { return filepath.Join(k.folder(), "kubeconfig") }

func (k *kubernetesNode) ctx() context.Context {
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	k.t.Cleanup(cancel)
	return ctx
}

// cluster runs the kit's program that starts clusters.
func (k *kubernetesNode) cluster(args ...string) string {
	k.t.Helper()
	return k.command(filepath.Join(k.kit, "cluster"), args...)
}

// command runs a program, also after the test has ended, and returns its output.
func (k *kubernetesNode) command(program string, args ...string) string {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.t.Context()), clusterPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	// The machine's own cache stays as it is.
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+k.dir, "KUBECONFIG="+k.kubeconfig())
	var told strings.Builder
	cmd.Stderr = &told
	out, err := cmd.Output()
	require.NoError(k.t, err, "%s\n%s%s", cmd, out, told.String())
	return string(out)
}

// load imports one of the kit's images, and returns its repository and its tag.
func (k *kubernetesNode) load(name string) (repository, tag string) {
	k.t.Helper()
	k.cluster("load", "--dir", k.folder(), "--tar", filepath.Join(k.kit, name+".tar"))
	image, err := os.ReadFile(filepath.Join(k.kit, name+".image"))
	require.NoError(k.t, err)
	repository, tag, found := strings.Cut(strings.TrimSpace(string(image)), ":")
	require.True(k.t, found, "%s.image has no tag: %s", name, image)
	return repository, tag
}

func TestChartTakesSettings(t *testing.T) {
	helm := os.Getenv("HELM")
	if helm == "" {
		t.Skip("make test-unit names helm in HELM")
	}
	out, err := exec.CommandContext(t.Context(), helm, "template", "tranche", "../../deployments/helm/tranche", "--set-json", settingsOfMPS).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "side-by-side.yaml: |")
}

// install installs the chart.
func (k *kubernetesNode) install() {
	k.t.Helper()
	repository, tag := k.load("tranche")
	k.image = repository + ":" + tag
	args := []string{
		"install", "tranche", filepath.Join(k.kit, "chart"), "--namespace", "tranche-system", "--create-namespace",
		"--wait", "--timeout", "5m", "--set", "image.repository=" + repository, "--set", "image.tag=" + tag,
		"--set", "kubeletPlugin.nvidiaDriverRoot=" + *driverRoot, "--set-json", settingsOfMPS,
	}
	if *simulate != "" {
		_, tag := k.load("simulated-driver")
		args = append(args, "--set", "simulate.inventory="+*simulate, "--set", "simulate.image.tag="+tag)
	}
	k.command(filepath.Join(k.programs, "helm"), args...)
}

// uninstall removes the chart. No MPS daemon is left.
func (k *kubernetesNode) uninstall() {
	k.t.Helper()
	k.command(filepath.Join(k.programs, "helm"), "uninstall", "tranche", "--namespace", "tranche-system", "--wait")
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(k.t, err)
	for _, path := range environments {
		environment, _ := os.ReadFile(path) // some have ended
		for variable := range strings.SplitSeq(string(environment), "\x00") {
			if strings.HasPrefix(variable, "CUDA_MPS_PIPE_DIRECTORY=") {
				assert.NotContains(k.t, variable, "tranche", "an MPS daemon is left: %s", path)
			}
		}
	}
}

// follow lets the node follow a profile; empty: none.
func (k *kubernetesNode) follow(profile string) {
	k.t.Helper()
	value := "null"
	if profile != "" {
		value = `"` + profile + `"`
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, names.LabelProfile, value)
	_, err := k.client.CoreV1().Nodes().Patch(k.ctx(), nodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(k.t, err)
}

// publishedGPU waits until a GPU is published, and returns its UUID. An empty UUID is that of the first.
func (k *kubernetesNode) publishedGPU(uuid string) string {
	k.t.Helper()
	return k.published("the GPU "+uuid, func(d resourceapi.Device) bool {
		return text(d, names.AttributeType) == "gpu" && (uuid == "" || text(d, names.AttributeUUID) == uuid)
	})
}

// publishedShare waits until shares of a GPU are published with a strategy.
func (k *kubernetesNode) publishedShare(uuid, strategy string) {
	k.t.Helper()
	k.published("shares of "+uuid+" by "+strategy, func(d resourceapi.Device) bool {
		return text(d, names.AttributeUUID) == uuid && text(d, names.AttributeSharingStrategy) == strategy
	})
}

func (k *kubernetesNode) published(what string, is func(resourceapi.Device) bool) (uuid string) {
	k.t.Helper()
	k.await(what+" in the node's ResourceSlices", func() error {
		slicesOfNode, err := k.client.ResourceV1().ResourceSlices().List(k.ctx(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, s := range slicesOfNode.Items {
			if i := slices.IndexFunc(s.Spec.Devices, is); i >= 0 {
				uuid = text(s.Spec.Devices[i], names.AttributeUUID)
				return nil
			}
		}
		return errors.New("not there")
	})
	return uuid
}

// text is an attribute of a device, empty if it has none.
func text(d resourceapi.Device, attribute resourceapi.QualifiedName) string {
	if value := d.Attributes[attribute].StringValue; value != nil {
		return *value
	}
	return ""
}

// await waits until what is asked for holds.
func (k *kubernetesNode) await(what string, holds func() error) {
	k.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(k.t.Context(), 200*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
		last = holds()
		return last == nil, nil
	})
	require.NoError(k.t, err, "%s: %v", what, last)
}

// tellState prints what somebody needs who was not there.
func (k *kubernetesNode) tellState() {
	for _, words := range []string{
		"get pods --all-namespaces -o wide", "get resourceclaims --all-namespaces -o yaml", "get events --all-namespaces",
		"-n tranche-system logs --all-containers --tail=100 -l app.kubernetes.io/component=kubelet-plugin",
	} {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(k.t.Context()), patience)
		cmd := exec.CommandContext(ctx, filepath.Join(k.programs, "kubectl"), append([]string{"--kubeconfig", k.kubeconfig()}, strings.Fields(words)...)...)
		out, err := cmd.CombinedOutput()
		cancel()
		k.t.Logf("kubectl %s: %v\n%s", words, err, out)
	}
}
