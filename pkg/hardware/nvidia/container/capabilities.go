package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"
)

// capsDevices names the major number of capability nodes in /proc/devices.
const capsDevices = "nvidia-caps"

// instanceNodes returns the two capability nodes that a container needs to use a compute
// instance: that of the GPU instance and that of the compute instance.
func (f *Files) instanceNodes(minor, gi, ci int) ([]*cdispecs.DeviceNode, error) {
	major, err := f.deviceMajor(capsDevices)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join("driver/nvidia/capabilities", fmt.Sprintf("gpu%d/mig/gi%d", minor, gi))
	var nodes []*cdispecs.DeviceNode
	for _, file := range []string{
		filepath.Join(folder, "access"),
		filepath.Join(folder, fmt.Sprintf("ci%d", ci), "access"),
	} {
		node, err := f.capabilityNode(file, major)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// monitorNode returns the capability node that lets NVML tell about the instances of all GPUs, those
// that are created later included (MIG User Guide, "Device Nodes and Capabilities"). A driver without
// MIG has none.
func (f *Files) monitorNode() ([]*cdispecs.DeviceNode, error) {
	const file = "driver/nvidia/capabilities/mig/monitor"
	if _, err := os.Stat(f.proc(file)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	major, err := f.deviceMajor(capsDevices)
	if err != nil {
		return nil, err
	}
	node, err := f.capabilityNode(file, major)
	return []*cdispecs.DeviceNode{node}, err
}

// capabilityNode reads a capability file of the driver ("DeviceFileMinor: 30",
// "DeviceFileMode: 292") and describes its node in full: the host has the node only if
// nvidia-modprobe made it.
func (f *Files) capabilityNode(file string, major int64) (*cdispecs.DeviceNode, error) {
	path := f.proc(file)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("capability of the instance: %w", err)
	}
	minor, err := numberAfter(string(data), "DeviceFileMinor:")
	if err != nil {
		return nil, fmt.Errorf("capability file %s: %w", path, err)
	}
	node := &cdispecs.DeviceNode{
		Path:        fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minor),
		Type:        "c",
		Major:       major,
		Minor:       minor,
		Permissions: "rw",
	}
	if mode, err := numberAfter(string(data), "DeviceFileMode:"); err == nil {
		fileMode := os.FileMode(mode) & os.ModePerm
		node.FileMode = &fileMode
	}
	return node, nil
}

// deviceMajor finds a character device's major number in /proc/devices.
func (f *Files) deviceMajor(name string) (int64, error) {
	path := f.proc("devices")
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	characters, _, _ := strings.Cut(string(data), "Block devices:")
	for line := range strings.Lines(characters) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == name {
			return strconv.ParseInt(fields[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s: the nvidia kernel module is not loaded, or is too old for MIG", path, name)
}

func (f *Files) proc(path string) string { return filepath.Join(f.cfg.ProcRoot, "proc", path) }

// numberAfter finds the number on the line that begins with a key.
func numberAfter(text, key string) (int64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s", strings.TrimSuffix(key, ":"))
}
