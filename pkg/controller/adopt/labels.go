package adopt

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
)

// Project is a project whose node labels are followed.
type Project string

// The projects.
const (
	MIGParted           Project = "mig-parted"
	DeviceConfigManager Project = "device-config-manager"
	Kaiwo               Project = "kaiwo"
	Nos                 Project = "nos"
	// DevicePlugin is NVIDIA's device plugin. Its label says how the GPUs of a node are shared,
	// those of the others how they are partitioned.
	DevicePlugin Project = "device-plugin"
	// own is Tranche's label, which is always followed.
	own Project = ""
)

// Projects returns the names of all projects, sorted.
func Projects() []Project {
	all := []Project{DevicePlugin}
	for i := range partitioning {
		if partitioning[i].project != own {
			all = append(all, partitioning[i].project)
		}
	}
	slices.Sort(all)
	return all
}

// ConfigMap is a ConfigMap with configurations of a project. Those of the device plugin have a
// key each; the other projects have one file with all.
type ConfigMap struct{ Namespace, Name, Key string }

// Config says which labels are followed.
type Config struct {
	// Projects are the followed ones, each with the ConfigMap of its configurations. With the
	// zero value, labels name PartitionProfiles.
	Projects map[Project]ConfigMap
	// DefaultConfig is the configuration of the device plugin for nodes without its label. Empty:
	// none.
	DefaultConfig string
}

// labels are the labels by which a project says how GPUs are partitioned.
type labels struct {
	project Project
	keys    []string
	// shared: the device plugin's label has an effect beside it.
	shared bool
	// prefix is put before a value to get the name of a PartitionProfile.
	prefix string
	format formats.Format
	// state is the label that reports progress; empty: there is none. words are its values.
	state string
	words words
}

// words are the values of a label that reports progress.
type words struct{ pending, rebooting, success, failed string }

// partitioning are the labels by precedence. The words are those of mig-manager
// (NVIDIA/mig-parted, cmd/nvidia-mig-manager) and of AMD's device config manager
// (ROCm/device-config-manager, docs/configuration/configmap.md). Kaiwo's labels name profiles of
// the device config manager.
var partitioning = []labels{
	{project: own, keys: []string{names.LabelProfile}},
	{
		project: MIGParted, keys: []string{names.LabelMIGConfig}, shared: true, format: formats.MIGParted,
		state: names.LabelMIGConfigState, words: words{"pending", "rebooting", "success", "failed"},
	},
	{
		project: DeviceConfigManager, keys: []string{names.LabelGPUConfigProfile}, shared: true, format: formats.DeviceConfigManager,
		state: names.LabelGPUConfigProfileState, words: words{"in-progress", "in-progress", "success", "failure"},
	},
	{project: Kaiwo, keys: []string{names.LabelKaiwoProfile}, format: formats.DeviceConfigManager},
	{project: Nos, keys: []string{names.LabelNos, names.LabelNosOlder}, shared: true, prefix: "nos-"},
}

func formatOf(project Project) formats.Format {
	for i := range partitioning {
		if partitioning[i].project == project {
			return partitioning[i].format
		}
	}
	return ""
}

// name is a profile that a label names.
type name struct {
	*labels
	label, value string
	configMap    ConfigMap
}

func (n *name) String() string { return n.label + "=" + n.value }

func (n *name) same(o *name) bool {
	if n.configMap != (ConfigMap{}) && o.configMap != (ConfigMap{}) {
		return n.configMap == o.configMap && n.value == o.value
	}
	a, errA := n.object()
	b, errB := o.object()
	return errA == nil && errB == nil && a == b
}

func (n *name) object() (string, error) {
	switch {
	case n.project == own:
		return checked(n.value)
	case n.configMap != (ConfigMap{}):
		return formats.ObjectName(string(n.project) + "." + n.value)
	}
	return formats.ObjectName(n.prefix + n.value)
}

// checked returns a name that a GPUNode can have in its spec.
func checked(profile string) (string, error) {
	if len(profile) > validation.LabelValueMaxLength || len(validation.IsDNS1123Subdomain(profile)) > 0 {
		return "", fmt.Errorf("%q cannot be the name of a PartitionProfile", profile)
	}
	return profile, nil
}

// read returns what labels of a node name, by precedence. held is the label that keeps the node
// as it is, empty: none does.
func (c *Config) read(of map[string]string) (all []*name, held string) {
	for i := range partitioning {
		l := &partitioning[i]
		configMap, followed := c.Projects[l.project]
		if !followed && l.project != own {
			continue
		}
		if l.project == Kaiwo {
			switch value, ok := of[names.LabelKaiwoEnabled]; {
			case !ok: // Without the label, Kaiwo does not partition the node.
				continue
			case value != "true":
				if len(all) == 0 {
					return nil, names.LabelKaiwoEnabled + "=" + value
				}
				continue
			}
		}
		for _, key := range l.keys {
			if value := of[key]; value != "" {
				all = append(all, &name{labels: l, label: key, value: value, configMap: configMap})
			}
		}
	}
	return all, ""
}

// record returns the text of the annotation that says which labels spec.profileName comes from. Values of
// labels have no commas.
func record(profile *name, sharing string) string {
	var all []string
	if profile != nil {
		all = append(all, profile.String())
		if profile.project == Kaiwo {
			all = append(all, names.LabelKaiwoEnabled+"=true")
		}
	}
	if sharing != "" {
		all = append(all, names.LabelDevicePluginConfig+"="+sharing)
	}
	return strings.Join(all, ",")
}

// recorded returns the labels in such a text.
func recorded(text string) map[string]string {
	all := map[string]string{}
	for _, one := range strings.Split(text, ",") {
		if key, value, ok := strings.Cut(one, "="); ok {
			all[key] = value
		}
	}
	return all
}

// removed returns names of labels that a node had. As in the projects whose labels they are, their
// removal changes nothing; that of Tranche's own label does.
func (c *Config) removed(text string) []*name {
	before := recorded(text)
	delete(before, names.LabelProfile)
	all, _ := c.read(before)
	return all
}

// objectOf returns the name of the PartitionProfile for a label and a configuration of the device plugin;
// either can be missing.
func objectOf(profile *name, sharing string) (string, error) {
	base := ""
	if profile != nil {
		var err error
		if base, err = profile.object(); err != nil || sharing == "" {
			return base, err
		}
		base += "."
	}
	if sharing == "" {
		return "", nil
	}
	return formats.ObjectName(base + string(DevicePlugin) + "." + sharing)
}
