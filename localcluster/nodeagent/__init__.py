"""A stand-in for the kubelet: runs the pods of its nodes as processes of this machine."""
