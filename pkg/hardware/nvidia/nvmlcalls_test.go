package nvidia

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/test/nvidiatest"
	"github.com/tranche-dev/tranche/test/simulator/memory"
	"github.com/tranche-dev/tranche/test/simulator/nvdriver"
)

// handles are what NVML calls are made on, in one state of a simulated machine.
type handles struct {
	lib     *nvdriver.NVML
	device  nvml.Device
	mig     nvml.Device
	gi      nvml.GpuInstance
	ci      nvml.ComputeInstance
	set     nvml.EventSet
	profile *nvml.GpuInstanceProfileInfo
	kind    *nvml.ComputeInstanceProfileInfo
}

// nvmlCall is one call that the product makes.
type nvmlCall struct {
	// method is go-nvml's name of it, below its interface.
	method string
	// answers are the codes that the simulator can return, beside SUCCESS.
	answers []nvml.Return
	// beyond explains those of them that nvml.h does not document for this call.
	beyond map[nvml.Return]string
	call   func(h handles) nvml.Return
}

const (
	uninitialized = nvml.ERROR_UNINITIALIZED
	invalid       = nvml.ERROR_INVALID_ARGUMENT
	notSupported  = nvml.ERROR_NOT_SUPPORTED
	notFound      = nvml.ERROR_NOT_FOUND
	inUse         = nvml.ERROR_IN_USE
	isLost        = nvml.ERROR_GPU_IS_LOST
	unknown       = nvml.ERROR_UNKNOWN

	operatingSystem = nvml.ERROR_OPERATING_SYSTEM
)

// noCodeForLost: some calls document neither ERROR_GPU_IS_LOST nor ERROR_UNKNOWN.
var noCodeForLost = map[nvml.Return]string{isLost: "nvml.h lists no code for a lost GPU here; in nvmlReturn_t the code stands for any GPU that is inaccessible"}

// anyCode: GPM's calls answer a "Nonzero NVML_ERROR_? enum on error" (nvml.h).
var anyCode = map[nvml.Return]string{uninitialized: "any code", isLost: "any code", notSupported: "any code", invalid: "any code"}

// group is a control group, which is there while MIG is on.
func (h handles) group() string {
	group := filepath.Join(nvdriver.Groups(filepath.Dir(h.lib.DriverRoot())), "pod")
	if mode, _, ret := h.device.GetMigMode(); ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE {
		_ = os.MkdirAll(group, 0o755)
	}
	return group
}

func errs(answers ...nvml.Return) []nvml.Return { return answers }

// nvmlCalls are all NVML calls of this package and those below it, by the name of the C function without
// "nvml". A new call needs an entry.
var nvmlCalls = map[string]nvmlCall{
	"Init":                   {"Interface.Init", nil, nil, func(h handles) nvml.Return { return h.lib.Init() }},
	"Shutdown":               {"Interface.Shutdown", errs(uninitialized), nil, func(h handles) nvml.Return { return h.lib.Shutdown() }},
	"SystemGetDriverVersion": {"Interface.SystemGetDriverVersion", errs(uninitialized), nil, func(h handles) nvml.Return { return last(h.lib.SystemGetDriverVersion()) }},
	"SystemGetCudaDriverVersion": {"Interface.SystemGetCudaDriverVersion", errs(uninitialized), map[nvml.Return]string{
		uninitialized: "nvml.h does not say that the call needs an Init; real libraries of 535 to 555 do",
	}, func(h handles) nvml.Return { return last(h.lib.SystemGetCudaDriverVersion()) }},
	"DeviceGetCount":                 {"Interface.DeviceGetCount", errs(uninitialized), nil, func(h handles) nvml.Return { return last(h.lib.DeviceGetCount()) }},
	"DeviceGetHandleByIndex":         {"Interface.DeviceGetHandleByIndex", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.lib.DeviceGetHandleByIndex(0)) }},
	"DeviceGetHandleByPciBusId":      {"Interface.DeviceGetHandleByPciBusId", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.lib.DeviceGetHandleByPciBusId(firstGPU)) }},
	"EventSetCreate":                 {"Interface.EventSetCreate", errs(uninitialized), nil, func(h handles) nvml.Return { return last(h.lib.EventSetCreate()) }},
	"EventSetWait":                   {"EventSet.Wait", errs(uninitialized, isLost, nvml.ERROR_TIMEOUT), nil, func(h handles) nvml.Return { return last(h.set.Wait(0)) }},
	"EventSetFree":                   {"EventSet.Free", nil, nil, func(h handles) nvml.Return { return h.set.Free() }},
	"DeviceRegisterEvents":           {"Device.RegisterEvents", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return h.device.RegisterEvents(nvml.EventTypeXidCriticalError, h.set) }},
	"DeviceGetSupportedEventTypes":   {"Device.GetSupportedEventTypes", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.device.GetSupportedEventTypes()) }},
	"DeviceGetName":                  {"Device.GetName", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.device.GetName()) }},
	"DeviceGetUUID":                  {"Device.GetUUID", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.device.GetUUID()) }},
	"DeviceGetMinorNumber":           {"Device.GetMinorNumber", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.device.GetMinorNumber()) }},
	"DeviceGetPciInfo":               {"Device.GetPciInfo", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.device.GetPciInfo()) }},
	"DeviceGetArchitecture":          {"Device.GetArchitecture", errs(uninitialized), nil, func(h handles) nvml.Return { return last(h.device.GetArchitecture()) }},
	"DeviceGetCudaComputeCapability": {"Device.GetCudaComputeCapability", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { _, _, ret := h.device.GetCudaComputeCapability(); return ret }},
	"DeviceGetNumGpuCores":           {"Device.GetNumGpuCores", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.device.GetNumGpuCores()) }},
	"DeviceGetMemoryInfo":            {"Device.GetMemoryInfo", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.device.GetMemoryInfo()) }},
	"DeviceGetMemoryInfo_v2":         {"Device.GetMemoryInfo_v2", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.device.GetMemoryInfo_v2()) }},
	"DeviceGetNvLinkState":           {"Device.GetNvLinkState", errs(uninitialized, notSupported, unknown), nil, func(h handles) nvml.Return { return last(h.device.GetNvLinkState(0)) }},
	"DeviceGetNvLinkRemoteDeviceType": {"Device.GetNvLinkRemoteDeviceType", errs(uninitialized, notSupported, isLost), nil, func(h handles) nvml.Return {
		return last(h.device.GetNvLinkRemoteDeviceType(0))
	}},
	"DeviceGetNvLinkRemotePciInfo": {"Device.GetNvLinkRemotePciInfo", errs(uninitialized, notSupported, unknown), nil, func(h handles) nvml.Return {
		return last(h.device.GetNvLinkRemotePciInfo(0))
	}},
	"DeviceGetGpuFabricInfo": {"Device.GetGpuFabricInfo", errs(uninitialized, notSupported, isLost), map[nvml.Return]string{
		uninitialized: "every call needs nvmlInit (nvml.h, nvmlInit_v2)", isLost: noCodeForLost[isLost],
	}, func(h handles) nvml.Return { return last(h.device.GetGpuFabricInfo()) }},
	"DeviceGetTotalEnergyConsumption": {"Device.GetTotalEnergyConsumption", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.device.GetTotalEnergyConsumption()) }},
	"DeviceGetVirtualizationMode":     {"Device.GetVirtualizationMode", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.device.GetVirtualizationMode()) }},
	"DeviceGetComputeRunningProcesses": {"Device.GetComputeRunningProcesses", errs(uninitialized, isLost), nil, func(h handles) nvml.Return {
		return last(h.device.GetComputeRunningProcesses())
	}},
	"DeviceGetGraphicsRunningProcesses": {"Device.GetGraphicsRunningProcesses", errs(uninitialized, isLost), nil, func(h handles) nvml.Return {
		return last(h.device.GetGraphicsRunningProcesses())
	}},
	"DeviceGetMPSComputeRunningProcesses": {"Device.GetMPSComputeRunningProcesses", errs(uninitialized, isLost), nil, func(h handles) nvml.Return {
		return last(h.device.GetMPSComputeRunningProcesses())
	}},
	"DeviceGetUtilizationRates": {"Device.GetUtilizationRates", errs(uninitialized, isLost, notSupported), nil, func(h handles) nvml.Return { return last(h.device.GetUtilizationRates()) }},
	"DeviceGetPowerUsage":       {"Device.GetPowerUsage", errs(uninitialized, isLost), nil, func(h handles) nvml.Return { return last(h.device.GetPowerUsage()) }},
	"DeviceGetTotalEccErrors": {"Device.GetTotalEccErrors", errs(uninitialized, isLost), nil, func(h handles) nvml.Return {
		return last(h.device.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC))
	}},
	"DeviceGetSupportedClocksEventReasons": {"Device.GetSupportedClocksEventReasons", errs(uninitialized, isLost), nil, func(h handles) nvml.Return {
		return last(h.device.GetSupportedClocksEventReasons())
	}},
	"DeviceGetCurrentClocksEventReasons": {"Device.GetCurrentClocksEventReasons", errs(uninitialized, isLost), nil, func(h handles) nvml.Return {
		return last(h.device.GetCurrentClocksEventReasons())
	}},
	"DeviceGetProcessUtilization": {"Device.GetProcessUtilization", errs(uninitialized, isLost, notSupported, notFound), nil, func(h handles) nvml.Return {
		return last(h.device.GetProcessUtilization(0))
	}},
	"GpmQueryDeviceSupport": {"Device.GpmQueryDeviceSupport", errs(uninitialized, isLost), anyCode, func(h handles) nvml.Return { return last(h.device.GpmQueryDeviceSupport()) }},
	"GpmSampleAlloc":        {"Interface.GpmSampleAlloc", nil, nil, func(h handles) nvml.Return { return last(h.lib.GpmSampleAlloc()) }},
	"GpmSampleFree": {"Interface.GpmSampleFree", errs(invalid), nil, func(h handles) nvml.Return {
		sample, _ := h.lib.GpmSampleAlloc()
		h.lib.GpmSampleFree(sample)
		return h.lib.GpmSampleFree(sample)
	}},
	"GpmSampleGet": {"Device.GpmSampleGet", errs(uninitialized, isLost, notSupported), anyCode, func(h handles) nvml.Return {
		sample, _ := h.lib.GpmSampleAlloc()
		return h.device.GpmSampleGet(sample)
	}},
	"GpmMigSampleGet": {"Device.GpmMigSampleGet", errs(uninitialized, isLost, invalid), anyCode, func(h handles) nvml.Return {
		sample, _ := h.lib.GpmSampleAlloc()
		return h.device.GpmMigSampleGet(1, sample)
	}},
	"GpmMetricsGet": {"Interface.GpmMetricsGet", errs(invalid), anyCode, func(h handles) nvml.Return {
		a, _ := h.lib.GpmSampleAlloc()
		b, _ := h.lib.GpmSampleAlloc()
		return h.lib.GpmMetricsGet(&nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: a, Sample2: b})
	}},
	"DeviceGetFieldValues": {"Device.GetFieldValues", errs(uninitialized, isLost),
		map[nvml.Return]string{uninitialized: "every call needs nvmlInit (nvml.h, nvmlInit_v2)", isLost: noCodeForLost[isLost]},
		func(h handles) nvml.Return {
			return h.device.GetFieldValues([]nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}})
		}},
	"DeviceGetComputeMode": {"Device.GetComputeMode", errs(uninitialized, isLost, notSupported), nil, func(h handles) nvml.Return { return last(h.device.GetComputeMode()) }},
	"DeviceSetComputeMode": {"Device.SetComputeMode", errs(uninitialized, isLost, notSupported), nil, func(h handles) nvml.Return { return h.device.SetComputeMode(nvml.COMPUTEMODE_DEFAULT) }},
	"DeviceSetMemoryLimits_v1": {"Device.SetMemoryLimits_v1", errs(uninitialized, notSupported, operatingSystem, isLost), noCodeForLost, func(h handles) nvml.Return {
		return h.device.SetMemoryLimits_v1(h.group(), 0, gib)
	}},
	"DeviceGetMemoryLimits_v1": {"Device.GetMemoryLimits_v1", errs(uninitialized, notSupported, operatingSystem, isLost), noCodeForLost, func(h handles) nvml.Return {
		return last(h.device.GetMemoryLimits_v1(h.group()))
	}},
	"DeviceGetMigMode": {"Device.GetMigMode", errs(uninitialized, notSupported, unknown), nil, func(h handles) nvml.Return { _, _, ret := h.device.GetMigMode(); return ret }},
	"DeviceSetMigMode": {"Device.SetMigMode", errs(uninitialized, notSupported, inUse, isLost), noCodeForLost, func(h handles) nvml.Return {
		activation, ret := h.device.SetMigMode(nvml.DEVICE_MIG_DISABLE)
		if ret == nvml.SUCCESS {
			return activation
		}
		return ret
	}},
	"DeviceGetMaxMigDeviceCount":      {"Device.GetMaxMigDeviceCount", errs(uninitialized, unknown), nil, func(h handles) nvml.Return { return last(h.device.GetMaxMigDeviceCount()) }},
	"DeviceGetMigDeviceHandleByIndex": {"Device.GetMigDeviceHandleByIndex", errs(uninitialized, notSupported, notFound, unknown), nil, func(h handles) nvml.Return { return last(h.device.GetMigDeviceHandleByIndex(0)) }},
	"DeviceGetGpuInstanceId":          {"Device.GetGpuInstanceId", errs(uninitialized, invalid, unknown), nil, func(h handles) nvml.Return { return last(h.mig.GetGpuInstanceId()) }},
	"DeviceGetComputeInstanceId":      {"Device.GetComputeInstanceId", errs(uninitialized, invalid, unknown), nil, func(h handles) nvml.Return { return last(h.mig.GetComputeInstanceId()) }},
	"DeviceGetGpuInstanceProfileInfo": {"Device.GetGpuInstanceProfileInfo", errs(uninitialized, notSupported, isLost), noCodeForLost, func(h handles) nvml.Return { return last(h.device.GetGpuInstanceProfileInfo(0)) }},
	"DeviceGetGpuInstanceProfileInfoV": {"Device.GetGpuInstanceProfileInfoV", errs(uninitialized, notSupported, isLost), noCodeForLost, func(h handles) nvml.Return {
		return last(h.device.(interface {
			GetGpuInstanceProfileInfoV3(enum int) (nvml.GpuInstanceProfileInfo_v3, nvml.Return)
		}).GetGpuInstanceProfileInfoV3(0))
	}},
	"DeviceGetGpuInstancePossiblePlacements": {"Device.GetGpuInstancePossiblePlacements", errs(uninitialized, notSupported, isLost), noCodeForLost, func(h handles) nvml.Return {
		return last(h.device.GetGpuInstancePossiblePlacements(h.profile))
	}},
	"DeviceGetGpuInstances":    {"Device.GetGpuInstances", errs(uninitialized, notSupported, isLost), noCodeForLost, func(h handles) nvml.Return { return last(h.device.GetGpuInstances(h.profile)) }},
	"DeviceGetGpuInstanceById": {"Device.GetGpuInstanceById", errs(uninitialized, notSupported, notFound, isLost), noCodeForLost, func(h handles) nvml.Return { return last(h.device.GetGpuInstanceById(99)) }},
	"DeviceCreateGpuInstanceWithPlacement": {"Device.CreateGpuInstanceWithPlacement", errs(uninitialized, notSupported, nvml.ERROR_INSUFFICIENT_RESOURCES, isLost), noCodeForLost, func(h handles) nvml.Return {
		return last(h.device.CreateGpuInstanceWithPlacement(h.profile, &nvml.GpuInstancePlacement{Start: 0, Size: 1}))
	}},
	"GpuInstanceGetInfo": {"GpuInstance.GetInfo", errs(uninitialized, invalid, isLost), noCodeForLost, func(h handles) nvml.Return { return last(h.gi.GetInfo()) }},
	"GpuInstanceDestroy": {"GpuInstance.Destroy", errs(uninitialized, invalid, inUse, isLost), noCodeForLost, func(h handles) nvml.Return { return h.gi.Destroy() }},
	"GpuInstanceGetComputeInstanceProfileInfo": {"GpuInstance.GetComputeInstanceProfileInfo", errs(uninitialized, invalid, notSupported, isLost), noCodeForLost, func(h handles) nvml.Return {
		return last(h.gi.GetComputeInstanceProfileInfo(nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED))
	}},
	"GpuInstanceGetComputeInstances":   {"GpuInstance.GetComputeInstances", errs(uninitialized, invalid, isLost), noCodeForLost, func(h handles) nvml.Return { return last(h.gi.GetComputeInstances(h.kind)) }},
	"GpuInstanceCreateComputeInstance": {"GpuInstance.CreateComputeInstance", errs(uninitialized, invalid, nvml.ERROR_INSUFFICIENT_RESOURCES, isLost), noCodeForLost, func(h handles) nvml.Return { return last(h.gi.CreateComputeInstance(h.kind)) }},
	"ComputeInstanceGetInfo":           {"ComputeInstance.GetInfo", errs(uninitialized, invalid, isLost), noCodeForLost, func(h handles) nvml.Return { return last(h.ci.GetInfo()) }},
	"ComputeInstanceDestroy":           {"ComputeInstance.Destroy", errs(uninitialized, invalid, inUse, isLost), noCodeForLost, func(h handles) nvml.Return { return h.ci.Destroy() }},
}

func last[T any](_ T, ret nvml.Return) nvml.Return { return ret }

// changesMachine matches the calls that are tried on a machine of their own.
var changesMachine = regexp.MustCompile(`^Init$|^Shutdown$|Set.*Mode$|SetMemoryLimits|Create.*Instance|Destroy$|EventSetFree`)

// nvmlStates are the states of a machine in which calls are tried.
var nvmlStates = map[string]func(t *testing.T) handles{
	"no MIG":      func(t *testing.T) handles { return startHandles(t, "L4-24GB") },
	"MIG off":     func(t *testing.T) handles { return startHandles(t, "H100-80GB") },
	"partitioned": partitioned,
	"MIG without partitions": func(t *testing.T) handles {
		h := partitioned(t)
		return destroyed(t, h)
	},
	"busy": func(t *testing.T) handles {
		h := partitioned(t)
		info, ret := h.gi.GetInfo()
		require.Equal(t, nvml.SUCCESS, ret)
		id := int(info.Id)
		setFaults(t, h, nvdriver.Faults{Processes: []nvdriver.Process{{GPU: firstGPU, GPUInstance: &id, PID: 7}}})
		return h
	},
	"lost": func(t *testing.T) handles {
		h := partitioned(t)
		require.Equal(t, nvml.SUCCESS, h.device.RegisterEvents(nvml.EventTypeXidCriticalError, h.set))
		setFaults(t, h, nvdriver.Faults{Lost: []string{firstGPU}})
		return h
	},
	"not initialized": func(t *testing.T) handles {
		h := partitioned(t)
		require.Equal(t, nvml.SUCCESS, h.lib.Shutdown())
		return h
	},
}

func setFaults(t *testing.T, h handles, f nvdriver.Faults) {
	t.Helper()
	require.NoError(t, nvdriver.SetFaults(filepath.Dir(h.lib.DriverRoot()), f))
}

func startHandles(t *testing.T, model string) handles {
	t.Helper()
	inv, err := models.LoadInventory(nvidiatest.OfModel(t, model, ""))
	require.NoError(t, err)
	lib, err := nvdriver.New(inv, nvdriver.Options{Root: memory.TempDir(t), Library: "615", Sleep: func(time.Duration) {}, Logf: t.Logf})
	require.NoError(t, err)
	require.Equal(t, nvml.SUCCESS, lib.Init())
	h := handles{lib: lib, profile: &nvml.GpuInstanceProfileInfo{Id: 19, InstanceCount: 7}, kind: &nvml.ComputeInstanceProfileInfo{Id: 0, InstanceCount: 1}}
	var ret nvml.Return
	h.device, ret = lib.DeviceGetHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, ret)
	h.set, ret = lib.EventSetCreate()
	require.Equal(t, nvml.SUCCESS, ret)
	return h
}

func partitioned(t *testing.T) handles {
	t.Helper()
	h := startHandles(t, "H100-80GB")
	_, ret := h.device.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	require.Equal(t, nvml.SUCCESS, ret)
	h.gi, ret = h.device.CreateGpuInstanceWithPlacement(h.profile, &nvml.GpuInstancePlacement{Start: 0, Size: 1})
	require.Equal(t, nvml.SUCCESS, ret)
	h.ci, ret = h.gi.CreateComputeInstance(h.kind)
	require.Equal(t, nvml.SUCCESS, ret)
	h.mig, ret = h.device.GetMigDeviceHandleByIndex(0)
	require.Equal(t, nvml.SUCCESS, ret)
	return h
}

func destroyed(t *testing.T, h handles) handles {
	t.Helper()
	require.Equal(t, nvml.SUCCESS, h.ci.Destroy())
	require.Equal(t, nvml.SUCCESS, h.gi.Destroy())
	return h
}

// needsHandle reports whether a call needs an instance that a state does not have.
func needsHandle(name string, h handles) bool {
	ofInstance := strings.HasPrefix(name, "GpuInstance") || strings.HasPrefix(name, "ComputeInstance") ||
		name == "DeviceGetGpuInstanceId" || name == "DeviceGetComputeInstanceId"
	return ofInstance && h.gi == nil
}

// The simulator answers what nvml.h documents for each call, and the table says which
// answers those are.
func TestSimulatorAnswersWhatNVMLDocuments(t *testing.T) {
	nvidiatest.InProcess(t)
	documented := documentedReturns(t)
	seen := map[string]map[nvml.Return]string{}
	for state, start := range nvmlStates {
		shared := start(t)
		for name, c := range nvmlCalls {
			h := shared
			if changesMachine.MatchString(name) {
				h = start(t)
			}
			if needsHandle(name, h) {
				continue
			}
			if ret := c.call(h); ret != nvml.SUCCESS {
				if seen[name] == nil {
					seen[name] = map[nvml.Return]string{}
				}
				seen[name][ret] = state
			}
		}
	}
	for name, c := range nvmlCalls {
		listed := documented[name]
		if assert.NotEmpty(t, listed, "nvml.h documents nvml%s", name); listed == nil {
			continue
		}
		for ret, state := range seen[name] {
			assert.Contains(t, c.answers, ret, "%s answers %s (%s), which the table does not list", name, ret, state)
			if _, explained := c.beyond[ret]; !explained {
				assert.Contains(t, listed, ret, "%s answers %s (%s), which nvml.h does not document", name, ret, state)
			}
		}
		for _, ret := range c.answers {
			assert.Contains(t, slices.Collect(maps.Keys(seen[name])), ret, "%s never answers %s", name, ret)
		}
	}
}

// documentedReturns reads nvml.h of the go-nvml module: the codes that the comment of
// each function names.
func documentedReturns(t *testing.T) map[string][]nvml.Return {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	require.NoError(t, err)
	require.NotEmpty(t, strings.TrimSpace(string(dir)), "nvml.h is in the module cache, which must be readable: go mod download github.com/NVIDIA/go-nvml")
	header, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "gen/nvml/nvml.h"))
	require.NoError(t, err)
	numbers := map[string]nvml.Return{}
	for _, m := range regexp.MustCompile(`(?m)^\s*NVML_(ERROR_\w+|SUCCESS)\s*=\s*(\d+)`).FindAllStringSubmatch(string(header), -1) {
		n, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		numbers[m[1]] = nvml.Return(n)
	}
	documented := map[string][]nvml.Return{}
	codes := regexp.MustCompile(`NVML_(ERROR_\w+|SUCCESS)\b`)
	for _, m := range regexp.MustCompile(`(?s)/\*\*((?:[^*]|\*[^/])*)\*/\s*(?:DEPRECATED\([^)]*\)\s*)?nvmlReturn_t DECLDIR nvml(\w+)\(`).FindAllStringSubmatch(string(header), -1) {
		name := m[2]
		for _, version := range []string{"_v3", "_v2", "V"} {
			if _, ok := nvmlCalls[name]; !ok {
				name = strings.TrimSuffix(m[2], version)
			}
		}
		for _, code := range codes.FindAllStringSubmatch(m[1], -1) {
			documented[name] = append(documented[name], numbers[code[1]])
		}
		documented[m[2]] = documented[name]
	}
	documented["DeviceGetMemoryInfo_v2"] = documented["DeviceGetMemoryInfo"]
	return documented
}

// Every NVML call of this package, and of those below it, is in the table.
func TestEveryNVMLCallIsListed(t *testing.T) {
	methods := map[string][]string{}
	for _, kind := range []reflect.Type{
		reflect.TypeFor[nvml.Interface](), reflect.TypeFor[nvml.Device](), reflect.TypeFor[nvml.GpuInstance](),
		reflect.TypeFor[nvml.ComputeInstance](), reflect.TypeFor[nvml.EventSet](),
	} {
		for i := range kind.NumMethod() {
			name := kind.Method(i).Name
			methods[name] = append(methods[name], kind.Name()+"."+name)
		}
	}
	listed := map[string]bool{}
	for _, c := range nvmlCalls {
		listed[c.method] = true
	}
	documented := documentedReturns(t)
	used := map[string]bool{}
	for name, file := range sources(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				// The name that a call goes by in errors is that of the C function.
				if text, err := strconv.Unquote(n.Value); err == nil && documented[text] != nil {
					assert.Contains(t, nvmlCalls, text, "%s makes a call that the table does not list", name)
					used[text] = true
				}
			case *ast.SelectorExpr:
				if of := methods[n.Sel.Name]; len(of) > 0 && isNVMLHandle(n.X) && n.Sel.Name != "Extensions" {
					assert.True(t, slices.ContainsFunc(of, func(m string) bool { return listed[m] }), "%s uses %v, which the table does not list", name, of)
				}
			}
			return true
		})
	}
	for name := range nvmlCalls {
		assert.True(t, used[name], "nothing makes the call %s any more", name)
	}
}

// isNVMLHandle reports whether an expression is, by its name, something of NVML's: these
// are the names that this package gives to libraries and handles.
func isNVMLHandle(x ast.Expr) bool {
	name := ""
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	return slices.Contains([]string{"nvml", "NVML", "device", "handle", "set", "gi", "Device"}, name)
}

// sources are the files of the package and of those below it, without their tests.
func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files[path], err = parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		return err
	}))
	return files
}
