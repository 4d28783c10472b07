package hardware

import (
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
)

var (
	pods     = flag.String("pods", "", "directory with the files of make hardware-kit, to start a Kubernetes of one node with Tranche on this machine; empty: none is started")
	simulate = flag.String("simulate", "", "with -pods: inventory of simulated GPUs that take the place of the machine's")
)

// TestPods runs CUDA programs in pods of a Kubernetes of one node, with Tranche as it is shipped. No
// setting of the GPU is changed.
func TestPods(t *testing.T) {
	if *pods == "" {
		t.Skip("-pods names no directory")
	}
	kit, err := filepath.Abs(*pods)
	require.NoError(t, err)
	if *simulate != "" {
		runPods(t, kit, "", true)
		return
	}
	m := realMachine(t)
	g := freeGPU(t, m)
	before := stateOf(t, m)
	t.Run(g.Name(), func(t *testing.T) { runPods(t, kit, g.UUID, m.hasMPS) })
	assert.Equal(t, before, stateOf(t, m), "the pods have changed the GPUs")
}

// runPods runs pods on one GPU; without a UUID, any.
func runPods(t *testing.T, kit, uuid string, hasMPS bool) {
	k := startKubernetes(t, kit)
	k.install()
	uuid = k.publishedGPU(uuid)
	whole := sight{}
	t.Run("whole", func(t *testing.T) {
		k := k.within(t)
		k.run("whole", wanted{class: "gpu-nvidia.tranche.dev", uuid: uuid}, chunk)
		whole = k.sees("whole")
		assert.EqualValues(t, chunk, whole.Allocated)
		assert.Equal(t, uuid, whole.Client.UUID)
		k.removePods()
	})
	for _, shared := range []struct{ strategy, profile string }{{"TimeSlicing", ""}, {"MPS", "side-by-side"}} {
		t.Run(shared.strategy, func(t *testing.T) {
			if !hasMPS && shared.strategy == "MPS" {
				t.Skip("no nvidia-cuda-mps-control in the driver or on the host")
			}
			k := k.within(t)
			k.follow(shared.profile)
			k.publishedShare(uuid, shared.strategy)
			share := func(memory int64, compute string) wanted {
				w := wanted{class: "gpu-memory-share-nvidia.tranche.dev", uuid: uuid, capacity: map[resourceapi.QualifiedName]resource.Quantity{
					names.CapacityMemory: *resource.NewQuantity(memory, resource.BinarySI),
				}}
				if hasMPS && compute != "" {
					w.capacity[names.CapacityComputePercent] = resource.MustParse(compute)
				}
				return w
			}
			most := func(limit int64) int64 {
				if hasMPS {
					return limit + beyond
				}
				return chunk // nothing would stop it
			}
			k.run("a", share(limitA, fmt.Sprint(computeA)), most(limitA))
			k.run("b", share(limitB, ""), most(limitB))
			a, b := k.sees("a"), k.sees("b")
			for _, seen := range []sight{a, b} {
				assert.Equal(t, 1, seen.Client.GPUs)
				assert.Equal(t, uuid, seen.Client.UUID)
			}
			if hasMPS {
				isKeptTo(t, a, limitA)
				isKeptTo(t, b, limitB)
				assert.LessOrEqual(t, a.Client.Multiprocessors, whole.Client.Multiprocessors*(computeA+5)/100)
			}
			assert.Equal(t, whole.Client.Multiprocessors, b.Client.Multiprocessors, "it has no limit")
			k.removePods()
		})
	}
	k.uninstall()
}

// wanted is what a pod claims.
type wanted struct {
	class, uuid string
	capacity    map[resourceapi.QualifiedName]resource.Quantity
}

const namespace = "hardware-test"

// run starts a pod with a CUDA program that allocates memory, and stays.
func (k *kubernetesNode) run(name string, w wanted, most int64) {
	k.t.Helper()
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: w.class,
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: fmt.Sprintf("device.attributes[%q].?%s.orValue(\"\") == %q", names.DriverName, names.AttributeUUID, w.uuid),
		}}},
	}
	if w.capacity != nil {
		exactly.Capacity = &resourceapi.CapacityRequirements{Requests: w.capacity}
	}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: exactly}}
	_, err := k.client.ResourceV1().ResourceClaims(namespace).Create(k.ctx(), claim, metav1.CreateOptions{})
	require.NoError(k.t, err)

	// The program is mounted, so that the product's image, which has a C library, is all it needs.
	text, err := json.Marshal(order{Library: "libcuda.so.1", Most: most})
	require.NoError(k.t, err)
	grace := int64(1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: "cuda", Image: k.image, Command: []string{"/kit/hardware-test"},
			Env:          []corev1.EnvVar{{Name: asClient, Value: string(text)}},
			Stdin:        true, // it ends with its input
			VolumeMounts: []corev1.VolumeMount{{Name: "kit", MountPath: "/kit", ReadOnly: true}},
			Resources:    corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}},
		}},
		Volumes:        []corev1.Volume{{Name: "kit", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: k.kit}}}},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}},
	}}
	_, err = k.client.CoreV1().Pods(namespace).Create(k.ctx(), pod, metav1.CreateOptions{})
	require.NoError(k.t, err)
}

// sees waits for what the program in a pod saw.
func (k *kubernetesNode) sees(name string) (s sight) {
	k.t.Helper()
	k.await("pod "+name+" tells what it sees", func() error {
		said, err := k.client.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{}).Do(k.ctx()).Raw()
		if err != nil {
			return err
		}
		line, _, complete := strings.Cut(string(said), "\n")
		if !complete {
			return fmt.Errorf("it said %q", said)
		}
		return json.Unmarshal([]byte(line), &s)
	})
	require.Empty(k.t, s.Error, "in pod %s", name)
	k.t.Logf("pod %s sees %s with %d multiprocessors, computes, and allocates %d MiB (refused: %t)",
		name, s.Client.UUID, s.Client.Multiprocessors, s.Allocated>>20, s.Refused)
	return s
}

// removePods removes all pods and claims, and waits until the claims are released.
func (k *kubernetesNode) removePods() {
	k.t.Helper()
	require.NoError(k.t, k.client.CoreV1().Pods(namespace).DeleteCollection(k.ctx(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	require.NoError(k.t, k.client.ResourceV1().ResourceClaims(namespace).DeleteCollection(k.ctx(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	k.await("pods and claims are gone", func() error {
		pods, err := k.client.CoreV1().Pods(namespace).List(k.ctx(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		claims, err := k.client.ResourceV1().ResourceClaims(namespace).List(k.ctx(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if left := len(pods.Items) + len(claims.Items); left > 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
}
