package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	classMemoryShare   = "gpu-memory-share-nvidia.tranche.dev"
	classFractionShare = "gpu-fraction-share-nvidia.tranche.dev"

	// mpsDir is where the MPS daemons of a node have their folders.
	mpsDir = "/run/tranche/mps"
)

// amounts is what a claim asks of a share: "memory": "2000Mi". Nothing: one
// replica.
type amounts map[resourceapi.QualifiedName]string

// shareRequest asks for a share, of one GPU if pci is not empty.
func shareRequest(class, pci string, a amounts) resourceapi.DeviceRequest {
	r := request(class, pci)
	if len(a) > 0 {
		r.Exactly.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{}}
		for name, value := range a {
			r.Exactly.Capacity.Requests[name] = resource.MustParse(value)
		}
	}
	return r
}

func devices(requests ...resourceapi.DeviceRequest) resourceapi.DeviceClaim {
	return resourceapi.DeviceClaim{Requests: requests}
}

// sharePod makes a pod on node-a with a share.
func (s *suite) sharePod(name, class string, a amounts) {
	s.t.Helper()
	s.sharePodAt(nodeA, name, "", class, a)
}

// sharePodAt makes a pod on a node with a share, of one GPU if pci is not empty.
func (s *suite) sharePodAt(node, name, pci, class string, a amounts) {
	s.t.Helper()
	s.podWithRequests(node, name, shareRequest(class, pci, a))
}

// podWithRequests makes a pod on a node with one claim.
func (s *suite) podWithRequests(node, name string, requests ...resourceapi.DeviceRequest) {
	s.t.Helper()
	s.template(name, devices(requests...))
	pod := newPod(name, fromTemplate(name))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	s.create(pod)
}

// anotherNamespace is the suite in a second namespace, which goes before the
// test's own does.
func (s *suite) anotherNamespace() *suite {
	s.t.Helper()
	namespaces := s.client.CoreV1().Namespaces()
	made, err := namespaces.Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-other-"}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	other := *s
	other.namespace = made.Name
	s.t.Cleanup(func() {
		other.deletePods()
		assert.NoError(s.t, namespaces.Delete(s.ctx, made.Name, metav1.DeleteOptions{}))
	})
	return &other
}

// env is the environment of a container.
func (s *suite) env(pod *corev1.Pod, container string) map[string]string {
	s.t.Helper()
	if s.lab != nil {
		return s.lab.env(s.t, pod, container)
	}
	found := map[string]string{}
	environment, err := os.ReadFile(filepath.Join(s.process(pod, container), "environ"))
	require.NoError(s.t, err)
	for variable := range strings.SplitSeq(strings.TrimSuffix(string(environment), "\x00"), "\x00") {
		name, value, _ := strings.Cut(variable, "=")
		found[name] = value
	}
	return found
}

// requireSeesShare checks that a container sees the device nodes of what its pod
// has a share of, and no others.
func (s *suite) requireSeesShare(pod *corev1.Pod, container string) {
	s.t.Helper()
	device := s.allocated(pod, "")
	require.NotNil(s.t, device.ShareID, "%s is no share", device.Device)
	require.Equal(s.t, s.nodesOf(pod.Spec.NodeName, device), s.seen(pod, container))
	env := s.env(pod, container)
	// The share's own id is the end of the name.
	name := "TRANCHE_DEVICE_" + strings.ToUpper(strings.ReplaceAll(device.Device, "-", "_")) + "_"
	told := 0
	for key, value := range env {
		if strings.HasPrefix(key, name) {
			assert.Regexp(s.t, `^(memory|fraction)-share [0-9.]+(Mi)? (MIG|GPU)-[0-9a-f-]{36}$`, value)
			told++
		}
	}
	assert.Equal(s.t, 1, told, env)
	assert.Equal(s.t, "void", env["NVIDIA_VISIBLE_DEVICES"])
}

// attribute is one of the device that a pod has, "" if the device lacks it.
func (s *suite) attribute(pod *corev1.Pod, name resourceapi.QualifiedName) string {
	s.t.Helper()
	has := s.allocated(pod, "")
	for _, slice := range s.slices(pod.Spec.NodeName) {
		for i := range slice.Spec.Devices {
			if d := &slice.Spec.Devices[i]; slice.Spec.Pool.Name == has.Pool && d.Name == has.Device {
				if a, ok := d.Attributes[name]; ok && a.StringValue != nil {
					return *a.StringValue
				}
				return ""
			}
		}
	}
	require.FailNow(s.t, "nobody publishes "+has.Device)
	return ""
}

// daemons lists the MPS daemons of a node that have a folder: their processes by
// the daemons' ids.
func (s *suite) daemons(node string) map[string]int {
	s.t.Helper()
	found := map[string]int{}
	for _, file := range s.listOnDisk(node, mpsDir) {
		folder := filepath.Join(mpsDir, file.Name())
		// The plugin tries at times whether daemons work, in folders whose names begin with a dot.
		if strings.HasPrefix(file.Name(), ".") || s.readOnDisk(node, folder+"/spec.json") == "" {
			continue
		}
		var process struct {
			PID int `json:"pid"`
		}
		if text := s.readOnDisk(node, folder+"/pid"); text != "" {
			require.NoError(s.t, json.Unmarshal([]byte(text), &process), text)
		}
		found[file.Name()] = process.PID
	}
	return found
}

// askDaemon gives a command to the MPS daemon that a container has.
func (s *suite) askDaemon(pod *corev1.Pod, container, command string) string {
	s.t.Helper()
	return strings.TrimSpace(s.exec(pod.Namespace, pod.Name, container, "sh", "-c", fmt.Sprintf("echo %s | nvidia-cuda-mps-control", command)))
}

// controlGroup is the control group of the cluster (test/cluster/internal/cluster).
func (s *suite) controlGroup() string {
	dir, err := filepath.EvalSymlinks(absolute(s.cluster))
	require.NoError(s.t, err)
	sum := sha256.Sum256([]byte(dir))
	return "/tranche-" + hex.EncodeToString(sum[:4])
}
