"""What vendors claim, tried on data sheets, price lists and predictions."""
