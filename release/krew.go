package main

import (
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// krewArchive is an archive of kubectl-tranche.
type krewArchive struct {
	system, architecture, file, sha256 string
}

// writeKrewManifest writes the manifest with which krew installs kubectl-tranche from
// the release on GitHub.
func writeKrewManifest(w io.Writer, version string, archives []krewArchive) error {
	type object = map[string]any
	var platforms []object
	for _, a := range archives {
		program := "kubectl-tranche"
		if a.system == "windows" {
			program += ".exe"
		}
		platforms = append(platforms, object{
			"selector": object{"matchLabels": object{"os": a.system, "arch": a.architecture}},
			"uri":      fmt.Sprintf("%s/releases/download/v%s/%s", source, version, a.file),
			"sha256":   a.sha256,
			"bin":      program,
		})
	}
	content, err := yaml.Marshal(object{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   object{"name": "tranche"},
		"spec": object{
			"version":          "v" + version,
			"homepage":         source,
			"shortDescription": "Show GPU partitions and who holds them",
			"description": strings.Join([]string{
				"Shows every GPU of the cluster, its partitions and their holders, explains why",
				"a pod does not get a GPU, and sets the partition profile of a node.",
				"Requires Tranche, a DRA driver for NVIDIA and AMD GPUs.",
			}, "\n"),
			"platforms": platforms,
		},
	})
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
