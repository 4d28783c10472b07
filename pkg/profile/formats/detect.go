package formats

import (
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

func keysOf(data []byte) []string {
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(data, &document); err != nil || len(document.Content) == 0 {
		return nil
	}
	var keys []string
	if root := document.Content[0]; root.Kind == yamlv3.MappingNode {
		for i := 0; i < len(root.Content); i += 2 {
			keys = append(keys, root.Content[i].Value)
		}
	}
	return keys
}

// known are keys at the top of a document that only one project's have.
var known = []struct {
	format Format
	keys   []string
}{
	{MIGParted, []string{"mig-configs", hooks, units}},
	{DeviceConfigManager, []string{"gpu-config-profiles", "gpuClientSystemdServices"}},
	{DevicePlugin, []string{"sharing", "flags", "resources", "imex"}},
}

// Keys of files beside the one with the configurations of mig-parted.
const (
	hooks = "hooks"
	units = "systemd-services"
)

// notCarriedOver says why a file of mig-parted has no counterpart; empty: it has one.
func notCarriedOver(data []byte) string {
	keys := keysOf(data)
	switch {
	case slices.Contains(keys, "mig-configs"):
	case slices.Contains(keys, hooks):
		return "hooks have no counterpart: a switch drains the GPUs, and evicts pods that use them"
	case slices.Contains(keys, units):
		return "services of the host are not stopped while GPUs change: stop those that use GPUs yourself, or run them as pods"
	}
	return ""
}

// detect returns whose a document is by its keys, also if they are in another case. Empty: nobody's.
func detect(data []byte) Format {
	keys := keysOf(data)
	for _, k := range known {
		if slices.ContainsFunc(keys, func(key string) bool {
			return slices.ContainsFunc(k.keys, func(known string) bool { return strings.EqualFold(key, known) })
		}) {
			return k.format
		}
	}
	return ""
}
