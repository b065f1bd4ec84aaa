"""Recurrent networks to compare with; each is called as HMLSTM is."""
