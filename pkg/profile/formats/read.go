package formats

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/strict"
)

// Read converts a file: a configuration file of a project, or objects that have it (ConfigMaps,
// objects of Kaiwo and nos), also several, separated by --- or in a List. The file's name is for
// errors. A document that cannot be read is an error; the others are returned with it.
func Read(file string, data []byte) ([]Document, error) {
	var documents []Document
	var errs []error
	for _, text := range split(file, data) {
		read, err := document(text)
		documents = append(documents, read...)
		errs = append(errs, err)
	}
	if len(documents) == 0 && errors.Join(errs...) == nil {
		return nil, fmt.Errorf("%s: it is empty", file)
	}
	return documents, errors.Join(errs...)
}

// split returns the documents of a YAML file, without those that are empty. By the rules of YAML,
// a line that begins with --- separates documents wherever it is.
func split(file string, data []byte) (texts []strict.Text) {
	start, line, first := 0, 0, 0
	add := func(end int) {
		if text := data[start:end]; !blank(text) {
			texts = append(texts, strict.Text{File: file, Data: text, Before: first})
		}
	}
	for at := 0; at < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		if separates(data[at:next]) {
			add(at)
			start, first = at, line
			if rest := bytes.TrimSpace(data[at+3 : next]); len(rest) == 0 || rest[0] == '#' {
				start, first = next, line+1
			}
		}
		at = next
	}
	add(len(data))
	return texts
}

func separates(line []byte) bool {
	return bytes.HasPrefix(line, []byte("---")) && (len(line) == 3 || bytes.ContainsAny(line[3:4], " \t\r\n"))
}

func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

func document(text strict.Text) ([]Document, error) {
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(text.Data, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", text.File, err)
	}
	var meta struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yamlv3.MappingNode {
		return nil, fmt.Errorf("%s: it must be an object: keys with values", text.File)
	}
	_ = yaml.Unmarshal(text.Data, &meta) // of another type: it is no object of Kubernetes
	if meta.Kind == "" {
		if read, err := helmValues(text, root.Content[0]); len(read) > 0 || err != nil {
			return read, err
		}
		return file(text)
	}
	text.File += ": " + meta.Kind + " " + strings.TrimPrefix(meta.Metadata.Namespace+"/"+meta.Metadata.Name, "/")
	switch meta.Kind {
	case "ConfigMap":
		return configMap(text, root.Content[0])
	case "List":
		return list(text)
	}
	return object(meta.Kind, text, root.Content[0])
}

func file(text strict.Text) ([]Document, error) {
	format := detect(text.Data)
	if format == "" {
		return nil, fmt.Errorf("%s: is of no known project: mig-parted has the key mig-configs, the device plugin sharing or flags, the device config manager gpu-config-profiles; %s", text.File, lookedFor)
	}
	name := filepath.Base(text.File)
	d, err := parse(format, strings.TrimSuffix(name, filepath.Ext(name)), text)
	if err != nil {
		return nil, err
	}
	return []Document{d}, nil
}

func configMap(text strict.Text, root *yamlv3.Node) ([]Document, error) {
	if _, err := text.Decode(&corev1.ConfigMap{}); err != nil {
		return nil, err
	}
	return files(text, child(root, "data"))
}

func child(n *yamlv3.Node, path ...string) *yamlv3.Node {
	for _, key := range path {
		var next *yamlv3.Node
		for i := 0; n.Kind == yamlv3.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				next = n.Content[i+1]
			}
		}
		if n = next; n == nil {
			return nil
		}
	}
	if n.Kind != yamlv3.MappingNode {
		return nil
	}
	return n
}

func files(text strict.Text, in *yamlv3.Node) ([]Document, error) {
	var documents []Document
	var errs []error
	var unknown []string
	for i := 0; in != nil && i+1 < len(in.Content); i += 2 {
		key, value := in.Content[i].Value, in.Content[i+1]
		inner := inside(text, text.File+", key "+key, value)
		format := detect(inner.Data)
		if format == "" {
			if read, err := valuesIn(inner, deepestValues); len(read) > 0 || err != nil {
				documents, errs = append(documents, read...), append(errs, err)
				continue
			}
			unknown = append(unknown, key)
			continue
		}
		d, err := parse(format, key, inner)
		if errs = append(errs, err); err == nil {
			documents = append(documents, d)
		}
	}
	switch {
	case len(unknown) > 0:
		errs = append(errs, fmt.Errorf("%s: these keys are files of no known project: %s", text.File, strings.Join(unknown, ", ")))
	case len(errs) == 0:
		errs = append(errs, fmt.Errorf("%s: has no file of a known project", text.File))
	}
	return documents, errors.Join(errs...)
}

func list(text strict.Text) ([]Document, error) {
	var l struct {
		Items []map[string]any `json:"items"`
	}
	if err := yaml.Unmarshal(text.Data, &l); err != nil {
		return nil, fmt.Errorf("%s: %w", text.File, err)
	}
	file, _, _ := strings.Cut(text.File, ": List")
	var documents []Document
	var errs []error
	for _, item := range l.Items {
		data, err := yaml.Marshal(item)
		if err == nil {
			var read []Document
			read, err = document(strict.Text{File: file, Data: data, Before: -1})
			documents = append(documents, read...)
		}
		errs = append(errs, err)
	}
	return documents, errors.Join(errs...)
}
