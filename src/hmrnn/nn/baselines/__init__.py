"""Recurrent networks that the HM-LSTM is compared with; they have the interface of HMLSTM."""
