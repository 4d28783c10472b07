package models

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"sync"

	"sigs.k8s.io/yaml"
)

//go:embed instancetypes.yaml
var instanceTypesYAML []byte

// instanceTypes is the content of instancetypes.yaml.
type instanceTypes struct {
	// Sources names what a row may cite.
	Sources map[string]string `json:"sources"`
	GPUs    []struct {
		Model           string         `json:"model"`
		VirtualFunction bool           `json:"virtualFunction"`
		Source          string         `json:"source"`
		Count           map[string]int `json:"count"`
	} `json:"gpus"`
}

var loadInstanceTypes = sync.OnceValue(func() *instanceTypes {
	t := &instanceTypes{}
	if err := yaml.UnmarshalStrict(instanceTypesYAML, t); err != nil {
		panic(fmt.Sprintf("models: instancetypes.yaml: %v", err))
	}
	return t
})

// InstanceTypes lists the instance types of clouds whose names stand for inventories.
func InstanceTypes() []string {
	var all []string
	for _, row := range loadInstanceTypes().GPUs {
		all = slices.AppendSeq(all, maps.Keys(row.Count))
	}
	slices.Sort(all)
	return all
}

// ofInstanceType is the inventory of an instance type; empty if it is none.
func ofInstanceType(name string) []byte {
	for _, row := range loadInstanceTypes().GPUs {
		if n := row.Count[name]; n > 0 {
			return fmt.Appendf(nil, "gpus: [{model: %s, count: %d, virtualFunction: %t}]\n", row.Model, n, row.VirtualFunction)
		}
	}
	return nil
}
