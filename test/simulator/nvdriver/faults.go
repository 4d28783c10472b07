package nvdriver

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/simulator/amdgpu"
	"github.com/tranche-dev/tranche/test/simulator/disk"
	"github.com/tranche-dev/tranche/test/simulator/load"
	"github.com/tranche-dev/tranche/test/simulator/nvstate"
	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

// Faults is the content of <Root>/faults.yaml: what goes wrong from now on,
// and who uses the GPUs. The file may be written at any time by hand, by a
// test or by SetFaults; no file means no faults.
type Faults struct {
	Calls []CallFault `json:"calls,omitempty"`
	// Processes are clients of the GPUs.
	Processes []Process `json:"processes,omitempty"`
	// Load is how much the GPUs are used, beside what the processes do.
	Load []load.Load `json:"load,omitempty"`
	// Lost are the addresses of GPUs that fell off the bus: every call on
	// them answers ERROR_GPU_IS_LOST.
	Lost []string `json:"lost,omitempty"`
	// LinksDown are the addresses of GPUs whose NVLinks are down.
	LinksDown []string `json:"linksDown,omitempty"`
	// Unregistered are those of GPUs that have not registered with NVIDIA's Fabric Manager.
	Unregistered []string `json:"unregistered,omitempty"`
	// LibraryMissing takes the driver's library away: who opens the driver finds none.
	// Who has it open keeps it.
	LibraryMissing bool `json:"libraryMissing,omitempty"`
	// XIDs are errors that the driver reports: an entry is one event at the
	// moment when it appears in the file.
	XIDs []XID `json:"xids,omitempty"`
	// Resets is what goes wrong with resets of GPUs.
	Resets []nvstate.ResetFault `json:"resets,omitempty"`
	// Recovery is what the driver asks for. A reset of the GPU, a reload of
	// the driver and a reboot take it out of the file.
	Recovery []Recovery `json:"recovery,omitempty"`
	// MPS is what goes wrong with the driver's programs.
	MPS *nvtools.Faults `json:"mps,omitempty"`
	// AMD is what the simulated kernel for AMD's GPUs makes of the file.
	AMD *amdgpu.Faults `json:"amd,omitempty"`
}

// CallFault makes a call fail, take longer or hang.
type CallFault struct {
	// Call is one of FaultCalls, or * for every one of them: a library that fails or hangs
	// as a whole.
	Call string `json:"call"`
	// GPU is a PCI address, or * for every GPU.
	GPU string `json:"gpu"`
	// Error is what the call answers, by name (ERROR_IN_USE) or number. With
	// none the call goes on after its delay.
	Error Return `json:"error,omitempty"`
	// Times is how often; 0 for ever. Writing the file restarts the count.
	Times int `json:"times,omitempty"`
	// Delay comes before the answer.
	Delay metav1.Duration `json:"delay,omitempty"`
	// Hang holds the call until the file no longer has this entry.
	Hang bool `json:"hang,omitempty"`
}

// Return is an NVML answer that can be written by name or number.
type Return nvml.Return

// returnNames maps every name that go-nvml prints to its number.
var returnNames = sync.OnceValue(func() map[string]Return {
	names := map[string]Return{}
	for n := range 1000 {
		if name := nvml.Return(n).String(); strings.HasPrefix(name, "ERROR_") {
			names[name] = Return(n)
		}
	}
	return names
})

// UnmarshalJSON accepts ERROR_IN_USE, IN_USE, 19 and "19".
func (r *Return) UnmarshalJSON(data []byte) error {
	s := strings.Trim(string(data), `"`)
	if n, err := strconv.Atoi(s); err == nil && n >= 0 && n < 1000 {
		*r = Return(n)
		return nil
	}
	for _, name := range []string{s, "ERROR_" + s} {
		if n, ok := returnNames()[name]; ok {
			*r = n
			return nil
		}
	}
	return fmt.Errorf("error: %s is not an NVML error like ERROR_IN_USE", data)
}

// MarshalJSON writes the number.
func (r Return) MarshalJSON() ([]byte, error) { return json.Marshal(int(r)) }

// Calls that can be made to fail. Reading calls that are not here cannot.
var faultCalls = []string{
	"Init", "GetCount", "GetHandle", "GetUUID", "GetName", "GetMemoryInfo", "GetMigMode", "SetMigMode",
	"GetGpuInstanceProfileInfo", "GetGpuInstancePossiblePlacements",
	"CreateGpuInstance", "GetGpuInstances", "GpuInstanceDestroy",
	"CreateComputeInstance", "GetComputeInstances", "ComputeInstanceDestroy",
	"GetMigDeviceHandleByIndex", "GetComputeRunningProcesses", "GetMPSComputeRunningProcesses", "GetComputeMode", "SetComputeMode", "GetPowerUsage", "GpmSampleGet",
	"SetMemoryLimits", "GetMemoryLimits", "EventSetCreate", "GetSupportedEventTypes", "RegisterEvents", "EventSetWait", "GetFieldValues",
	"GetMinorNumber", "GetPciInfo", "GetCudaComputeCapability", "GetNumGpuCores", "GetVirtualizationMode", "GetGpuInstanceId", "GetComputeInstanceId",
	"GetGraphicsRunningProcesses", "GetUtilizationRates", "GetSupportedClocksEventReasons", "GetCurrentClocksEventReasons", "GetTotalEccErrors",
	"GetProcessUtilization", "GetTotalEnergyConsumption", "GpmQueryDeviceSupport",
	"GetNvLinkState", "GetNvLinkRemoteDeviceType", "GetNvLinkRemotePciInfo", "GetGpuFabricInfo",
}

// FaultCalls lists the names that CallFault.Call knows: go-nvml's method
// names, without WithPlacement and ById, and with the type's name before
// Destroy.
func FaultCalls() []string { return slices.Sorted(slices.Values(faultCalls)) }

func faultsPath(root string) string { return filepath.Join(root, "faults.yaml") }

// ParseFaults decodes and checks faults; every error names the key.
func ParseFaults(data []byte) (*Faults, error) {
	f := &Faults{}
	if err := yaml.UnmarshalStrict(data, f); err != nil {
		return nil, fmt.Errorf("not valid faults: %w", err)
	}
	for i, c := range f.Calls {
		key := fmt.Sprintf("calls[%d]", i)
		switch {
		case c.Call != "*" && !slices.Contains(faultCalls, c.Call):
			return nil, fmt.Errorf("%s.call: unknown call %q: choose *, or one of %s", key, c.Call, strings.Join(FaultCalls(), ", "))
		case c.GPU != "*" && !models.IsPCIAddress(c.GPU):
			return nil, fmt.Errorf("%s.gpu: %q is neither * nor an address like 0000:1b:00.0", key, c.GPU)
		case c.Times < 0:
			return nil, fmt.Errorf("%s.times: %d is negative", key, c.Times)
		case c.Delay.Duration < 0:
			return nil, fmt.Errorf("%s.delay: %s is negative", key, c.Delay.Duration)
		case c.Error == 0 && c.Delay.Duration == 0 && !c.Hang:
			return nil, fmt.Errorf("%s: does nothing; give error, delay or hang", key)
		}
	}
	for i, p := range f.Processes {
		if err := checkProcess(p); err != nil {
			return nil, fmt.Errorf("processes[%d].%w", i, err)
		}
	}
	for i, l := range f.Load {
		err := l.Check()
		if l.GPU != "*" && !models.IsPCIAddress(l.GPU) {
			err = fmt.Errorf("gpu: %q is neither * nor an address like 0000:1b:00.0", l.GPU)
		}
		if err != nil {
			return nil, fmt.Errorf("load[%d].%w", i, err)
		}
	}
	for i, pci := range f.Lost {
		if !models.IsPCIAddress(pci) {
			return nil, fmt.Errorf("lost[%d]: %q is not an address like 0000:1b:00.0", i, pci)
		}
	}
	for i, x := range f.XIDs {
		if err := x.check(); err != nil {
			return nil, fmt.Errorf("xids[%d].%w", i, err)
		}
	}
	for i, r := range f.Resets {
		if r.GPU != "*" && !models.IsPCIAddress(r.GPU) {
			return nil, fmt.Errorf("resets[%d].gpu: %q is neither * nor an address like 0000:1b:00.0", i, r.GPU)
		}
		if err := r.Check(); err != nil {
			return nil, fmt.Errorf("resets[%d].%w", i, err)
		}
	}
	for i, r := range f.Recovery {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("recovery[%d].%w", i, err)
		}
	}
	if f.MPS != nil {
		if err := f.MPS.Check(); err != nil {
			return nil, fmt.Errorf("mps.%w", err)
		}
	}
	if f.AMD != nil {
		if err := f.AMD.Check(); err != nil {
			return nil, fmt.Errorf("amd.%w", err)
		}
	}
	return f, nil
}

// SetFaults replaces the faults of a root, for every process that uses it. Those
// of AMD's GPUs stay, unless there are others for them.
func SetFaults(root string, f Faults) error {
	if old, err := currentFaults(root); err == nil && f.AMD == nil {
		f.AMD = old.AMD
	}
	data, err := yaml.Marshal(f)
	if err != nil {
		return err
	}
	if _, err := ParseFaults(data); err != nil {
		return err
	}
	return disk.ReplaceFile(faultsPath(root), data)
}

// inject carries out what the faults say about a call on a GPU.
func (n *NVML) inject(call, pci string) nvml.Return {
	faults, id := n.faults.Read()
	for i, c := range faults.Calls {
		if (c.Call != "*" && c.Call != call) || (c.GPU != "*" && c.GPU != pci) {
			continue
		}
		if c.Times > 0 {
			fires, err := n.countFault(i, c.Times, id)
			if err != nil {
				return n.unexpected(call, err)
			}
			if !fires {
				continue
			}
		}
		n.sleep(c.Delay.Duration)
		for c.Hang && n.stillHangs(c) {
			time.Sleep(hangPoll)
		}
		return nvml.Return(c.Error)
	}
	return nvml.SUCCESS
}

// hangPoll is how often a hanging call looks whether it may go on. It is real
// time: a fake clock would spin.
const hangPoll = 10 * time.Millisecond

func (n *NVML) stillHangs(fault CallFault) bool {
	faults, _ := n.faults.Read()
	return slices.Contains(faults.Calls, fault)
}

// countFault uses up one of a fault's times and says whether there was one
// left. The count is in the state: it survives a restart of the process, and
// restarts with every new faults.yaml.
func (n *NVML) countFault(index, times int, id disk.FileID) (fires bool, err error) {
	err = n.store.Update(func(st *nvstate.State) (*nvstate.State, error) {
		fires = st.FireFault("calls", index, times, id)
		if !fires {
			return nil, nil
		}
		return st, nil
	})
	return fires, err
}
