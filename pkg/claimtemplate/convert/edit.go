package convert

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// parseObject returns the object of a document. It expands aliases, because a change of one would change
// the others. Lines of an expanded document are not those of the data.
func parseObject(data []byte) (document *yamlv3.Node, expanded bool, err error) {
	document = &yamlv3.Node{}
	if err := yamlv3.Unmarshal(data, document); err != nil {
		return nil, false, err
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yamlv3.MappingNode {
		return nil, false, errors.New("it must be an object: keys with values")
	}
	root := document.Content[0]
	if !anyNode(root, func(n *yamlv3.Node) bool { return n.Kind == yamlv3.AliasNode || n.Anchor != "" || n.Value == "<<" }) {
		if root.Style&yamlv3.FlowStyle != 0 { // JSON
			anyNode(root, func(n *yamlv3.Node) bool { n.Style &^= yamlv3.FlowStyle; return false })
		}
		return document, false, nil
	}
	var plain map[string]any
	if err := yaml.Unmarshal(data, &plain); err != nil {
		return nil, false, err
	}
	text, err := yaml.Marshal(plain)
	if err != nil {
		return nil, false, err
	}
	return document, true, yamlv3.Unmarshal(text, document)
}

func anyNode(n *yamlv3.Node, is func(*yamlv3.Node) bool) bool {
	return is(n) || slices.ContainsFunc(n.Content, func(child *yamlv3.Node) bool { return anyNode(child, is) })
}

func printObject(root *yamlv3.Node) ([]byte, error) {
	var b bytes.Buffer
	encoder := yamlv3.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, err
	}
	return b.Bytes(), encoder.Close()
}

// edit writes claims into the pods, and removes what they replace.
func (p pods) edit(r Result) error {
	spec := valueOf(p.node, "spec")
	if r.Scheduler != "" {
		remove(spec, "schedulerName")
	}
	if metadata := valueOf(p.node, "metadata"); metadata != nil {
		removeFrom(metadata, "annotations", r.Annotations...)
	}
	var written []string
	for _, c := range r.Claims {
		list := "containers"
		if c.Init {
			list = "initContainers"
		}
		all := valueOf(spec, list)
		if all == nil || c.Index >= len(all.Content) || all.Content[c.Index].Kind != yamlv3.MappingNode || c.Container.Name == "" {
			return fmt.Errorf("%s[%d] has no name: set one", list, c.Index)
		}
		resources := childOf(all.Content[c.Index], "resources", yamlv3.MappingNode)
		appendTo(resources, "claims", "name", c.Name)
		for _, name := range c.Remove {
			removeFrom(resources, "limits", string(name))
			removeFrom(resources, "requests", string(name))
		}
		if !slices.Contains(written, c.Name) {
			written = append(written, c.Name)
			appendTo(spec, "resourceClaims", "name", c.Name, "resourceClaimTemplateName", c.Template)
		}
	}
	return nil
}

func valueOf(n *yamlv3.Node, key string) *yamlv3.Node {
	if n == nil || n.Kind != yamlv3.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func keysOf(n *yamlv3.Node) (all []string) {
	if n != nil && n.Kind == yamlv3.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			all = append(all, n.Content[i].Value)
		}
	}
	return all
}

// childOf returns the object or list under a key, and creates it if it does not exist.
func childOf(n *yamlv3.Node, key string, kind yamlv3.Kind) *yamlv3.Node {
	c := valueOf(n, key)
	if c == nil {
		c = &yamlv3.Node{}
		n.Content = append(n.Content, &yamlv3.Node{Kind: yamlv3.ScalarNode, Value: key}, c)
	}
	if c.Kind != kind { // new, or null
		*c = yamlv3.Node{Kind: kind}
	}
	return c
}

// appendTo adds an object, given as keys and values, to the list under a key.
func appendTo(n *yamlv3.Node, key string, pairs ...string) {
	item := &yamlv3.Node{Kind: yamlv3.MappingNode}
	for _, text := range pairs {
		item.Content = append(item.Content, &yamlv3.Node{Kind: yamlv3.ScalarNode, Tag: "!!str", Value: text})
	}
	list := childOf(n, key, yamlv3.SequenceNode)
	list.Content = append(list.Content, item)
}

func remove(n *yamlv3.Node, key string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}

// removeFrom removes keys of the object under a key, and the object if it is empty then.
func removeFrom(n *yamlv3.Node, key string, keys ...string) {
	in := valueOf(n, key)
	if in == nil || in.Kind != yamlv3.MappingNode || len(in.Content) == 0 {
		return
	}
	for _, k := range keys {
		remove(in, k)
	}
	if len(in.Content) == 0 {
		remove(n, key)
	}
}
