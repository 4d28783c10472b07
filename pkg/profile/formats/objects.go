package formats

import (
	"fmt"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claimtemplate/convert"
	"github.com/tranche-dev/tranche/pkg/strict"
)

func object(kind string, text strict.Text, root *yamlv3.Node) ([]Document, error) {
	d := Document{Name: text.File}
	var err error
	switch {
	case slices.Contains(KaiwoKinds, kind):
		d.Format = Kaiwo
		d.Profiles, d.Notes, err = ReadKaiwo(kind, text)
	case slices.Contains(NosKinds, kind):
		d.Format, d.Notes = Nos, []string{NosQuotaNote}
	case kind == "Node":
		return node(text)
	case slices.Contains(convert.ClaimKinds, kind):
		d.Format = NVIDIADRA
		d.Object, err = convert.Claims(kind, text)
	default:
		d.Format = Pods
		if d.Object, err = convert.Pods(text.Data, text.Before); err != nil {
			err = fmt.Errorf("%s: %w", text.File, err)
		} else if d.Object == nil {
			if read, err := helmValues(text, root); len(read) > 0 || err != nil {
				return read, err
			}
			err = fmt.Errorf("%s: is of no known project; there are ConfigMap, Node, %s, and objects with pods; "+lookedFor, text.File, strings.Join(slices.Concat(KaiwoKinds, NosKinds, convert.ClaimKinds), ", "))
		}
	}
	if err != nil {
		return nil, err
	}
	finish(d.Profiles)
	return []Document{d}, nil
}

// node converts the labels of a Node to commands.
func node(text strict.Text) (documents []Document, err error) {
	var n struct {
		Metadata struct {
			Name   string            `json:"name"`
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := yaml.Unmarshal(text.Data, &n); err != nil {
		return nil, fmt.Errorf("%s: %w", text.File, err)
	}
	add := func(format Format, label string, profiles []Profile) {
		value := n.Metadata.Labels[label]
		if value == "" {
			return
		}
		d := Document{Format: format, Name: text.File + ", label " + label, Profiles: profiles}
		finish(d.Profiles)
		name, err := ObjectName(value)
		if len(profiles) > 0 {
			name, err = profiles[0].Name, profiles[0].Err
		}
		if err == nil {
			d.Notes = []string{command(n.Metadata.Name, name)}
			d.node, d.partitioned = n.Metadata.Name, name
		} else if len(profiles) == 0 {
			d.Notes = []string{err.Error()}
		}
		documents = append(documents, d)
	}
	labels := n.Metadata.Labels
	add(MIGParted, names.LabelMIGConfig, nil)
	add(DeviceConfigManager, names.LabelGPUConfigProfile, nil)
	if labels[names.LabelKaiwoEnabled] == "true" {
		add(Kaiwo, names.LabelKaiwoProfile, brought(labels[names.LabelKaiwoProfile]))
	}
	for _, label := range []string{names.LabelNos, names.LabelNosOlder} {
		if value := labels[label]; value != "" {
			add(Nos, label, []Profile{NosProfile(value)})
			break
		}
	}
	shared := labels[names.LabelDevicePluginConfig]
	switch {
	case shared == "":
	case len(documents) == 0:
		add(DevicePlugin, names.LabelDevicePluginConfig, nil)
	case documents[0].Format == Kaiwo:
		documents[0].Notes = append(documents[0].Notes, fmt.Sprintf("the label %s=%s does not count beside Kaiwo's", names.LabelDevicePluginConfig, shared))
	case documents[0].partitioned != "":
		documents[0].shared = shared
	}
	return documents, nil
}

// brought is the profile that Kaiwo brings, if the name is that of one.
func brought(name string) []Profile {
	if p, ok := KaiwoDefault(name); ok {
		return []Profile{p}
	}
	return nil
}
