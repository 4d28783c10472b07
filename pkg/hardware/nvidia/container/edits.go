package container

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/go-logr/logr"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia/session"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Config says where the driver is. Each path has two names where this process, in its
// container, sees a folder under another name than the host does.
type Config struct {
	DriverRoot, HostDriverRoot string
	DevRoot, HostDevRoot       string
	// ProcRoot is the folder that has proc in it.
	ProcRoot string
	// CDIHookPath is where the host has nvidia-cdi-hook.
	CDIHookPath string
	Logger      logr.Logger
}

// Files are the files and device nodes of a driver.
type Files struct {
	cfg    Config
	common commonCache
}

// New returns the files of a driver. All paths of the Config are set.
func New(cfg Config) *Files { return &Files{cfg: cfg} }

// unwantedHooks are hooks of nvcdi that containers must not get. This one runs as root on
// the host and lets a container set memory limits of the GPU by its own environment.
var unwantedHooks = []string{"apply-cuda-memory-limits"}

// commonCache keeps the last common edits as JSON, so that each caller gets a copy.
type commonCache struct {
	mu      sync.Mutex
	version string
	edits   []byte
	// files are those that the edits mount, as this process sees them. If one is missing,
	// the driver was installed again with the same version.
	files []string
	// nodes are the device numbers of the device nodes, as this process sees them. They
	// are part of the edits, and a reload of a module such as nvidia-uvm may change them.
	nodes map[string]uint64
}

// Common returns what every container needs, whichever its devices are: control nodes,
// driver files, hooks, and an environment that keeps others out.
func (f *Files) Common(t *session.Task) (*cdispecs.ContainerEdits, error) {
	version, err := session.Ask(t, "SystemGetDriverVersion", t.NVML.SystemGetDriverVersion)
	if err != nil {
		return nil, err
	}
	if edits := f.common.load(version); edits != nil {
		return edits, nil
	}
	return f.makeCommon(t, version)
}

func (f *Files) makeCommon(t *session.Task, version string) (*cdispecs.ContainerEdits, error) {
	t.Note("of nvcdi for the common edits")
	lib, err := f.nvcdi(t)
	if err != nil {
		return nil, err
	}
	common, err := lib.GetCommonEdits()
	if err != nil {
		return nil, fmt.Errorf("driver root %s: %w", f.cfg.DriverRoot, err)
	}
	edits := common.ContainerEdits
	if err := f.checkComplete(edits); err != nil {
		return nil, err
	}
	files := lists.Map(edits.Mounts, func(mount *cdispecs.Mount) string { return mount.HostPath })
	nodes := map[string]uint64{}
	for _, node := range edits.DeviceNodes {
		path := cmp.Or(node.HostPath, node.Path)
		if nodes[path], err = deviceNumber(path); err != nil {
			return nil, fmt.Errorf("device node %s: %w", path, err)
		}
	}
	f.toHost(edits)
	edits.Env = setLast(edits.Env, names.EnvVisibleDevices, "void")
	return f.common.store(version, edits, files, nodes)
}

// checkComplete fails if something is missing that CUDA needs. nvcdi omits silently what it
// does not find, for example on a node that has just booted, and such edits must not be kept
// (kubernetes-sigs/dra-driver-nvidia-gpu#1144, #1380).
func (f *Files) checkComplete(edits *cdispecs.ContainerEdits) error {
	if !slices.ContainsFunc(edits.Mounts, func(m *cdispecs.Mount) bool { return strings.Contains(m.ContainerPath, "/libcuda.so.") }) {
		return fmt.Errorf("no libcuda.so below driver root %s: is the driver still being installed?", f.cfg.DriverRoot)
	}
	for _, path := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm"} {
		if !slices.ContainsFunc(edits.DeviceNodes, func(n *cdispecs.DeviceNode) bool { return n.Path == path }) {
			return fmt.Errorf("no device node %s below %s: run nvidia-modprobe -u -c0 on the host", path, f.cfg.DevRoot)
		}
	}
	return nil
}

// GPU returns the device nodes of the whole GPU, those of its display part included.
func (f *Files) GPU(g *session.GPU) (*cdispecs.ContainerEdits, error) {
	uuid, err := g.UUID()
	if err != nil {
		return nil, err
	}
	lib, err := f.nvcdi(g.Task)
	if err != nil {
		return nil, err
	}
	g.Note("of nvcdi for the device edits")
	devices, err := lib.GetDeviceSpecsByID(uuid)
	if err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("nvcdi knows no device %s", uuid)
	}
	edits := devices[0].ContainerEdits
	minor, err := g.Minor()
	if err != nil {
		return nil, err
	}
	own := fmt.Sprintf("/dev/nvidia%d", minor)
	if !slices.ContainsFunc(edits.DeviceNodes, func(n *cdispecs.DeviceNode) bool { return n.Path == own }) {
		return nil, fmt.Errorf("no device node %s below %s: run nvidia-modprobe -c%d on the host", own, f.cfg.DevRoot, minor)
	}
	f.toHost(&edits)
	return &edits, nil
}

// Monitor returns the device nodes of the GPU, and what it takes to watch all its instances.
func (f *Files) Monitor(g *session.GPU) (*cdispecs.ContainerEdits, error) {
	edits, err := f.GPU(g)
	if err != nil {
		return nil, err
	}
	nodes, err := f.monitorNode()
	edits.DeviceNodes = append(edits.DeviceNodes, nodes...)
	return edits, err
}

// Instance returns the device node of the GPU, and the capability nodes of one of its
// compute instances, which give access to it and to no other. These are looked up by the
// ids of the instance, because what nvcdi returns for a MIG device that was just created
// may lack them (kubernetes-sigs/dra-driver-nvidia-gpu#787). graphics reports whether the
// instance can draw.
func (f *Files) Instance(g *session.GPU, gi, ci int, graphics bool) (*cdispecs.ContainerEdits, error) {
	edits, err := f.GPU(g)
	if err != nil {
		return nil, err
	}
	if !graphics {
		withoutDisplay(edits)
	}
	minor, err := g.Minor()
	if err != nil {
		return nil, err
	}
	nodes, err := f.instanceNodes(minor, gi, ci)
	if err != nil {
		return nil, err
	}
	edits.DeviceNodes = append(edits.DeviceNodes, nodes...)
	return edits, nil
}

// withoutDisplay takes away the device nodes of a GPU's display part, and the hooks, which are for them.
func withoutDisplay(edits *cdispecs.ContainerEdits) {
	edits.Hooks = nil
	edits.DeviceNodes = slices.DeleteFunc(edits.DeviceNodes, func(n *cdispecs.DeviceNode) bool {
		return strings.HasPrefix(n.Path, "/dev/dri/")
	})
}

// nvcdi makes NVIDIA's library for CDI. Each use needs a new one, because it caches.
func (f *Files) nvcdi(t *session.Task) (nvcdi.Interface, error) {
	return nvcdi.New(
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithNvmlLib(t.NVML),
		nvcdi.WithDriverRoot(f.cfg.DriverRoot),
		nvcdi.WithDevRoot(f.cfg.DevRoot),
		nvcdi.WithNVIDIACDIHookPath(f.cfg.CDIHookPath),
		nvcdi.WithFeatureFlags(nvcdi.FeatureDisableNvsandboxUtils),
		nvcdi.WithDisabledHooks(unwantedHooks...),
		nvcdi.WithLogger(quietLogger{f.cfg.Logger}),
	)
}

// load returns a copy of the common edits of a driver version, nil if there are none or if
// they are out of date.
func (c *commonCache) load(version string) *cdispecs.ContainerEdits {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version != version {
		return nil
	}
	for _, file := range c.files {
		if _, err := os.Stat(file); err != nil {
			return nil
		}
	}
	for path, number := range c.nodes {
		if now, err := deviceNumber(path); err != nil || now != number {
			return nil
		}
	}
	edits := &cdispecs.ContainerEdits{}
	if err := json.Unmarshal(c.edits, edits); err != nil {
		return nil
	}
	return edits
}

// deviceNumber returns the major and minor number of a device node.
func deviceNumber(path string) (uint64, error) {
	var stat syscall.Stat_t
	err := syscall.Stat(path, &stat)
	return stat.Rdev, err
}

func (c *commonCache) store(version string, edits *cdispecs.ContainerEdits, files []string, nodes map[string]uint64) (*cdispecs.ContainerEdits, error) {
	data, err := json.Marshal(edits)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version, c.edits, c.files, c.nodes = version, data, files, nodes
	return edits, nil
}

// setLast sets a variable and puts it last.
func setLast(env []string, name, value string) []string {
	env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	return append(env, name+"="+value)
}
