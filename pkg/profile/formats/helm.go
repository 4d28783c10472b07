package formats

import (
	"errors"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/tranche-dev/tranche/pkg/strict"
)

// inValues are the paths of the files in the values of Helm charts: the GPU operator's, and the
// device plugin's.
var inValues = [][]string{{"migManager", "config", "data"}, {"devicePlugin", "config", "data"}, {"config", "map"}}

// lookedFor says where files are found, for errors.
const lookedFor = "in values of Helm charts, of subcharts, and in objects that have them (HelmRelease, Application), files are below migManager.config.data, devicePlugin.config.data and config.map"

// deepestValues limits how deep values are searched.
const deepestValues = 20

// texts are keys of objects whose values are the values of a chart as a text: spec.source.helm.values
// of an Application, spec.valuesContent of a HelmChart, and a key of a ConfigMap for a HelmRelease.
var texts = []string{"values", "valuesContent", "values.yaml"}

// helmValues converts the files in the values of Helm charts, wherever they are below a node of a
// document: below the key of a subchart, or in an object that installs the chart. There can be none.
func helmValues(text strict.Text, n *yamlv3.Node) ([]Document, error) {
	return valuesBelow(text, n, nil, deepestValues)
}

func valuesBelow(text strict.Text, n *yamlv3.Node, path []string, depth int) (documents []Document, err error) {
	if depth == 0 {
		return nil, nil
	}
	var errs []error
	add := func(read []Document, err error) { documents, errs = append(documents, read...), append(errs, err) }
	switch n.Kind {
	case yamlv3.SequenceNode:
		for _, entry := range n.Content {
			add(valuesBelow(text, entry, path, depth-1))
		}
	case yamlv3.MappingNode:
		for _, p := range inValues {
			// Other charts have values config.map, too.
			if in := child(n, p...); in != nil && len(in.Content) > 0 && (p[0] != "config" || anyFile(in)) {
				add(files(strict.Text{File: text.File + ": " + strings.Join(slices.Concat(path, p), "."), Before: text.Before}, in))
			}
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i].Value, n.Content[i+1]
			below := slices.Concat(path, []string{key})
			if value.Kind == yamlv3.ScalarNode && slices.Contains(texts, key) {
				add(valuesIn(inside(text, text.File+": "+strings.Join(below, "."), value), depth-1))
				continue
			}
			add(valuesBelow(text, value, below, depth-1))
		}
	}
	return documents, errors.Join(errs...)
}

// valuesIn is helmValues for values that are a text.
func valuesIn(text strict.Text, depth int) ([]Document, error) {
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(text.Data, &root); err != nil || len(root.Content) == 0 {
		return nil, nil //nolint:nilerr // some other text
	}
	return valuesBelow(text, root.Content[0], nil, depth)
}

// anyFile reports whether an object has a file of a known project.
func anyFile(in *yamlv3.Node) bool {
	for i := 1; i < len(in.Content); i += 2 {
		if detect([]byte(in.Content[i].Value)) != "" {
			return true
		}
	}
	return false
}

// inside is a text in a document. The lines of a literal block (|) are lines of the file.
func inside(text strict.Text, file string, value *yamlv3.Node) strict.Text {
	inner := strict.Text{File: file, Data: []byte(value.Value), Before: -1}
	if value.Style&yamlv3.LiteralStyle != 0 && text.Before >= 0 {
		inner.Before = text.Before + value.Line
	}
	return inner
}
