package nodetest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/amd"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
)

// GPUAt is an NVIDIA GPU that can be had as a whole, or one partition of it.
func GPUAt(address string) gpu.GPU {
	return gpu.GPU{
		PCIAddress: address, Vendor: gpu.NVIDIA, UUID: "GPU-" + address, ProductName: "H100", Architecture: "Hopper", DriverVersion: "580", PCIeRoot: "pci0000:00",
		NUMANode: new(int64(0)), ComputeUnits: 132, Counters: gpu.Counters{"memory": 80},
		Placements: []gpu.Placement{
			{GPU: address, Type: gpu.TypeMIG, Profile: "1g.10gb", Start: 2, Size: 1, Memory: 10, ComputeUnits: 16, Engines: map[string]int64{"decoders": 1}, Consumes: gpu.Counters{"memory": 10}},
			{GPU: address, Type: gpu.TypeGPU, Memory: 80, Consumes: gpu.Counters{"memory": 80}},
		},
	}
}

// AMDGPUAt is a GPU with two compute modes, in one memory mode.
func AMDGPUAt(address, memoryMode string) gpu.GPU {
	g := gpu.GPU{
		PCIAddress: address, Vendor: gpu.AMD, UUID: "e3a9", ProductName: "MI300X", DriverVersion: "6.16.13", MemoryMode: memoryMode,
		Counters: gpu.Counters{"memory": 80, "cpx-0": 1, "cpx-1": 1},
	}
	for i, own := range []string{"cpx-0", "cpx-1"} {
		g.Placements = append(g.Placements, gpu.Placement{GPU: address, Type: gpu.TypeXCP, Profile: "cpx", Start: i, Memory: 40, Consumes: gpu.Counters{"memory": 40, own: 1}})
	}
	if memoryMode == "NPS1" {
		g.Counters["dpx-0"] = 2
		g.Placements[0].Consumes["dpx-0"] = 1
		g.Placements = append(g.Placements,
			gpu.Placement{GPU: address, Type: gpu.TypeXCP, Profile: "dpx", Memory: 40, Consumes: gpu.Counters{"memory": 40, "dpx-0": 2}},
			gpu.Placement{GPU: address, Type: gpu.TypeGPU, Profile: "spx", Memory: 80, Consumes: gpu.Counters{"memory": 80}})
	}
	return g
}

// Quiet is a context whose logger is silent.
func Quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// NodeWith is a node that offers extended resources.
func NodeWith(allocatable map[corev1.ResourceName]string) *corev1.Node {
	n := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
	for name, quantity := range allocatable {
		n.Status.Allocatable[name] = resource.MustParse(quantity)
	}
	return n
}

// NVIDIASlice is a ResourceSlice of the DRA driver of NVIDIA.
func NVIDIASlice(devices ...resourceapi.Device) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "nvidia"},
		Spec:       resourceapi.ResourceSliceSpec{Driver: "gpu.nvidia.com", NodeName: new(NodeName), Pool: resourceapi.ResourcePool{Name: "n"}, Devices: devices},
	}
}

// RealVendors are the vendors of a real machine.
func RealVendors() []hardware.Vendor { return []hardware.Vendor{nvidia.Vendor{}, amd.Vendor{}} }

// Scrape returns the lines that a handler of /metrics writes and that are samples of a metric.
func Scrape(t *testing.T, metrics http.Handler, name string) []string {
	t.Helper()
	answer := httptest.NewRecorder()
	metrics.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	var lines []string
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, name) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	slices.Sort(lines)
	return lines
}

// PreparedRecord is the record of a claim that is prepared, and of its pods.
func PreparedRecord(uid string, pods []string, devices ...ledger.Device) ledger.Record {
	r := ledger.Record{Claim: ledger.ClaimRef{UID: "uid", Namespace: "team", Name: uid}, State: ledger.Prepared, Devices: devices}
	for _, pod := range pods {
		r.Pods = append(r.Pods, ledger.Pod{Name: pod})
	}
	return r
}

// HeldDevice is a device of such a record.
func HeldDevice(p gpu.Placement, uuid string, admin bool) ledger.Device {
	return ledger.Device{Name: p.Name(), Placement: p, UUID: uuid, Admin: admin}
}

// AwaitStatus waits until the claim's status says of its one device whether it
// is ready, and returns what it says.
func AwaitStatus(t *testing.T, api *fake.Clientset, c *resourceapi.ResourceClaim, ready metav1.ConditionStatus) resourceapi.AllocatedDeviceStatus {
	t.Helper()
	var device resourceapi.AllocatedDeviceStatus
	require.Eventually(t, func() bool {
		now, err := api.ResourceV1().ResourceClaims(c.Namespace).Get(t.Context(), c.Name, metav1.GetOptions{})
		require.NoError(t, err)
		if len(now.Status.Devices) != 1 {
			return false
		}
		device = now.Status.Devices[0]
		return device.Conditions[0].Status == ready
	}, Patience, Tick)
	assert.Equal(t, "Ready", device.Conditions[0].Type)
	return device
}
